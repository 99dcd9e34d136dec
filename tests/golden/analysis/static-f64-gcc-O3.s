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
	movl	$b+12800, %ecx
	movq	%r9, %rsi
	salq	$6, %rdi
	addq	$a, %rdi
	.p2align 4,,10
	.p2align 3
.L6:
	movapd	(%rsi), %xmm1
	leaq	-12800(%rcx), %rax
	movq	%rdi, %rdx
	.p2align 4,,10
	.p2align 3
.L3:
	movsd	(%rdx), %xmm0
	addq	$320, %rax
	addq	$8, %rdx
	unpcklpd	%xmm0, %xmm0
	mulpd	-320(%rax), %xmm0
	addpd	%xmm0, %xmm1
	cmpq	%rcx, %rax
	jne	.L3
	movaps	%xmm1, (%rsi)
	leaq	16(%rax), %rcx
	addq	$16, %rsi
	cmpq	$b+13104, %rax
	jne	.L6
	addq	$1, %r8
	addq	$320, %r9
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
	.size	c, 12800
c:
	.zero	12800
	.globl	b
	.align 32
	.type	b, @object
	.size	b, 12800
b:
	.zero	12800
	.globl	a
	.align 32
	.type	a, @object
	.size	a, 12800
a:
	.zero	12800
	.section	.note.GNU-stack,"",@progbits
