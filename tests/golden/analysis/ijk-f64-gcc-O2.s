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
	pushq	%r14
	.cfi_def_cfa_offset 16
	.cfi_offset 14, -16
	movslq	%edi, %r14
	movq	%rsi, %r10
	movl	%edi, %r11d
	leaq	0(,%r14,8), %rsi
	pushq	%r13
	.cfi_def_cfa_offset 24
	.cfi_offset 13, -24
	movq	%rcx, %r13
	pushq	%r12
	.cfi_def_cfa_offset 32
	.cfi_offset 12, -32
	leaq	(%r10,%rsi), %rdi
	movq	%rdx, %r12
	pushq	%rbp
	.cfi_def_cfa_offset 40
	.cfi_offset 6, -40
	xorl	%ebp, %ebp
	pushq	%rbx
	.cfi_def_cfa_offset 48
	.cfi_offset 3, -48
	xorl	%ebx, %ebx
	.p2align 4,,10
	.p2align 3
.L3:
	leaq	0(%r13,%rbx,8), %rcx
	movq	%r12, %r8
	xorl	%r9d, %r9d
	.p2align 4,,10
	.p2align 3
.L6:
	movsd	(%rcx), %xmm1
	movq	%r8, %rdx
	movq	%r10, %rax
	.p2align 4,,10
	.p2align 3
.L4:
	movsd	(%rax), %xmm0
	mulsd	(%rdx), %xmm0
	addq	$8, %rax
	addq	%rsi, %rdx
	addsd	%xmm0, %xmm1
	movsd	%xmm1, (%rcx)
	cmpq	%rax, %rdi
	jne	.L4
	leal	1(%r9), %eax
	addq	$8, %rcx
	addq	$8, %r8
	cmpl	%eax, %r11d
	je	.L5
	movl	%eax, %r9d
	jmp	.L6
.L5:
	leal	1(%rbp), %eax
	addq	%rsi, %r10
	addq	%rsi, %rdi
	addq	%r14, %rbx
	cmpl	%r9d, %ebp
	je	.L1
	movl	%eax, %ebp
	jmp	.L3
.L1:
	popq	%rbx
	.cfi_def_cfa_offset 40
	popq	%rbp
	.cfi_def_cfa_offset 32
	popq	%r12
	.cfi_def_cfa_offset 24
	popq	%r13
	.cfi_def_cfa_offset 16
	popq	%r14
	.cfi_def_cfa_offset 8
	ret
.L9:
	.cfi_restore 3
	.cfi_restore 6
	.cfi_restore 12
	.cfi_restore 13
	.cfi_restore 14
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
