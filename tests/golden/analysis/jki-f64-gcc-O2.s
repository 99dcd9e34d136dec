	.file	"ptr.c"
	.text
	.p2align 4
	.globl	product
	.type	product, @function
product:
.LFB0:
	.cfi_startproc
	testl	%edi, %edi
	jle	.L9
	pushq	%r13
	.cfi_def_cfa_offset 16
	.cfi_offset 13, -16
	movl	%edi, %r9d
	xorl	%r13d, %r13d
	pushq	%r12
	.cfi_def_cfa_offset 24
	.cfi_offset 12, -24
	movq	%rdx, %r12
	pushq	%rbp
	.cfi_def_cfa_offset 32
	.cfi_offset 6, -32
	movq	%rsi, %rbp
	movslq	%edi, %rsi
	pushq	%rbx
	.cfi_def_cfa_offset 40
	.cfi_offset 3, -40
	salq	$3, %rsi
	movq	%rcx, %rbx
	.p2align 4,,10
	.p2align 3
.L3:
	movq	%rbp, %r10
	movq	%r12, %rdi
	xorl	%r11d, %r11d
	.p2align 4,,10
	.p2align 3
.L6:
	movq	%r10, %rcx
	movq	%rbx, %rdx
	xorl	%eax, %eax
	.p2align 4,,10
	.p2align 3
.L4:
	movsd	(%rcx), %xmm0
	mulsd	(%rdi), %xmm0
	movl	%eax, %r8d
	addl	$1, %eax
	addsd	(%rdx), %xmm0
	addq	%rsi, %rcx
	movsd	%xmm0, (%rdx)
	addq	%rsi, %rdx
	cmpl	%eax, %r9d
	jne	.L4
	leal	1(%r11), %eax
	addq	$8, %r10
	addq	%rsi, %rdi
	cmpl	%r8d, %r11d
	je	.L5
	movl	%eax, %r11d
	jmp	.L6
.L5:
	leal	1(%r13), %eax
	addq	$8, %rbx
	addq	$8, %r12
	cmpl	%r11d, %r13d
	je	.L1
	movl	%eax, %r13d
	jmp	.L3
.L1:
	popq	%rbx
	.cfi_def_cfa_offset 32
	popq	%rbp
	.cfi_def_cfa_offset 24
	popq	%r12
	.cfi_def_cfa_offset 16
	popq	%r13
	.cfi_def_cfa_offset 8
	ret
.L9:
	.cfi_restore 3
	.cfi_restore 6
	.cfi_restore 12
	.cfi_restore 13
	ret
	.cfi_endproc
.LFE0:
	.size	product, .-product
	.p2align 4
	.globl	run
	.type	run, @function
run:
.LFB1:
	.cfi_startproc
	movl	size(%rip), %edi
	movl	$c, %ecx
	movl	$b, %edx
	movl	$a, %esi
	jmp	product
	.cfi_endproc
.LFE1:
	.size	run, .-run
	.globl	c
	.bss
	.align 32
	.type	c, @object
	.size	c, 4232
c:
	.zero	4232
	.globl	b
	.align 32
	.type	b, @object
	.size	b, 4232
b:
	.zero	4232
	.globl	a
	.align 32
	.type	a, @object
	.size	a, 4232
a:
	.zero	4232
	.globl	size
	.data
	.align 4
	.type	size, @object
	.size	size, 4
size:
	.long	23
	.section	.note.GNU-stack,"",@progbits
