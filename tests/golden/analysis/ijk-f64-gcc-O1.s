	.file	"ptr.c"
	.text
	.globl	product
	.type	product, @function
product:
.LFB0:
	.cfi_startproc
	movl	%edi, %r11d
	testl	%edi, %edi
	jle	.L9
	pushq	%r13
	.cfi_def_cfa_offset 16
	.cfi_offset 13, -16
	pushq	%r12
	.cfi_def_cfa_offset 24
	.cfi_offset 12, -24
	pushq	%rbp
	.cfi_def_cfa_offset 32
	.cfi_offset 6, -32
	pushq	%rbx
	.cfi_def_cfa_offset 40
	.cfi_offset 3, -40
	movq	%rsi, %rdi
	movq	%rdx, %r12
	movq	%rcx, %rbx
	movslq	%r11d, %rsi
	salq	$3, %rsi
	movq	%rdi, %r10
	addq	%rsi, %rdi
	movl	$0, %ebp
	movl	$0, %r13d
	jmp	.L3
.L5:
	leal	1(%rbp), %eax
	addq	%rsi, %r10
	addq	%rsi, %rdi
	addq	%rsi, %rbx
	cmpl	%r9d, %ebp
	je	.L1
	movl	%eax, %ebp
.L3:
	movq	%r12, %r8
	movq	%rbx, %rcx
	movl	%r13d, %r9d
.L6:
	movq	%r8, %rdx
	movq	%r10, %rax
.L4:
	movsd	(%rax), %xmm0
	mulsd	(%rdx), %xmm0
	addsd	(%rcx), %xmm0
	movsd	%xmm0, (%rcx)
	addq	$8, %rax
	addq	%rsi, %rdx
	cmpq	%rdi, %rax
	jne	.L4
	leal	1(%r9), %eax
	addq	$8, %r8
	addq	$8, %rcx
	cmpl	%eax, %r11d
	je	.L5
	movl	%eax, %r9d
	jmp	.L6
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
	.globl	run
	.type	run, @function
run:
.LFB1:
	.cfi_startproc
	movl	size(%rip), %edi
	movl	$c, %ecx
	movl	$b, %edx
	movl	$a, %esi
	call	product
	ret
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
