	.file	"sta.c"
	.text
	.p2align 4
	.globl	run
	.type	run, @function
run:
.LFB0:
	.cfi_startproc
	movl	$c, %r9d
	xorl	%r8d, %r8d
.L2:
	leaq	(%r8,%r8,4), %rdi
	movl	$b+6400, %ecx
	movq	%r9, %rsi
	salq	$5, %rdi
	addq	$a, %rdi
.L6:
	movaps	(%rsi), %xmm1
	leaq	-6400(%rcx), %rax
	movq	%rdi, %rdx
	.p2align 4,,10
	.p2align 3
.L3:
	movss	(%rdx), %xmm0
	addq	$160, %rax
	addq	$4, %rdx
	shufps	$0, %xmm0, %xmm0
	mulps	-160(%rax), %xmm0
	addps	%xmm0, %xmm1
	cmpq	%rcx, %rax
	jne	.L3
	movaps	%xmm1, (%rsi)
	leaq	16(%rax), %rcx
	addq	$16, %rsi
	cmpq	$b+6544, %rax
	jne	.L6
	addq	$1, %r8
	addq	$160, %r9
	cmpq	$40, %r8
	jne	.L2
	ret
	.cfi_endproc
.LFE0:
	.size	run, .-run
	.globl	c
	.bss
	.align 32
	.type	c, @object
	.size	c, 6400
c:
	.zero	6400
	.globl	b
	.align 32
	.type	b, @object
	.size	b, 6400
b:
	.zero	6400
	.globl	a
	.align 32
	.type	a, @object
	.size	a, 6400
a:
	.zero	6400
	.section	.note.GNU-stack,"",@progbits
