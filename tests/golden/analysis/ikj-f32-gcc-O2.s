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
	movslq	%edi, %r8
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset 6, -16
	movl	%edi, %r10d
	movq	%rdx, %r11
	salq	$2, %r8
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset 3, -24
	movq	%rsi, %rbx
	movq	%rcx, %r9
	addq	%r8, %rbx
	leaq	(%rcx,%r8), %rsi
	xorl	%ebp, %ebp
	.p2align 4,,10
	.p2align 3
.L3:
	movq	%rbx, %rcx
	movq	%r11, %rdi
	subq	%r8, %rcx
	.p2align 4,,10
	.p2align 3
.L6:
	movq	%rdi, %rdx
	movq	%r9, %rax
	.p2align 4,,10
	.p2align 3
.L4:
	movss	(%rcx), %xmm0
	mulss	(%rdx), %xmm0
	addq	$4, %rax
	addq	$4, %rdx
	addss	-4(%rax), %xmm0
	movss	%xmm0, -4(%rax)
	cmpq	%rsi, %rax
	jne	.L4
	addq	$4, %rcx
	addq	%r8, %rdi
	cmpq	%rcx, %rbx
	jne	.L6
	addl	$1, %ebp
	addq	%r8, %rbx
	addq	%r8, %r9
	addq	%r8, %rsi
	cmpl	%ebp, %r10d
	jne	.L3
	popq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
.L9:
	.cfi_restore 3
	.cfi_restore 6
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
	.size	c, 2116
c:
	.zero	2116
	.globl	b
	.align 32
	.type	b, @object
	.size	b, 2116
b:
	.zero	2116
	.globl	a
	.align 32
	.type	a, @object
	.size	a, 2116
a:
	.zero	2116
	.globl	size
	.data
	.align 4
	.type	size, @object
	.size	size, 4
size:
	.long	23
	.section	.note.GNU-stack,"",@progbits
