	.file	"ptr.c"
	.text
	.p2align 4
	.globl	product
	.type	product, @function
product:
.LFB0:
	.cfi_startproc
	testl	%edi, %edi
	jle	.L31
	pushq	%r15
	.cfi_def_cfa_offset 16
	.cfi_offset 15, -16
	movslq	%edi, %rax
	movq	%rsi, %r8
	movq	%rdx, %r11
	pushq	%r14
	.cfi_def_cfa_offset 24
	.cfi_offset 14, -24
	xorl	%r15d, %r15d
	pushq	%r13
	.cfi_def_cfa_offset 32
	.cfi_offset 13, -32
	pushq	%r12
	.cfi_def_cfa_offset 40
	.cfi_offset 12, -40
	pushq	%rbp
	.cfi_def_cfa_offset 48
	.cfi_offset 6, -48
	movq	%rcx, %rbp
	pushq	%rbx
	.cfi_def_cfa_offset 56
	.cfi_offset 3, -56
	movl	%edi, %ebx
	movl	%ebx, %r13d
	shrl	$2, %r13d
	movq	%rax, -64(%rsp)
	salq	$2, %rax
	salq	$4, %r13
	leaq	(%rsi,%rax), %rdi
	movl	%ebx, %esi
	movq	%rax, -56(%rsp)
	movq	%rdi, -72(%rsp)
	andl	$3, %esi
	leaq	(%rax,%rcx), %rdi
	leal	-1(%rbx), %eax
	movl	%eax, -32(%rsp)
	movl	%ebx, %eax
	movq	%rdi, -80(%rsp)
	andl	$-4, %eax
	movq	$0, -48(%rsp)
	movl	%esi, -24(%rsp)
	movl	%eax, -28(%rsp)
	xorl	%eax, %eax
	.p2align 4,,10
	.p2align 3
.L3:
	movq	-48(%rsp), %rdx
	movl	%eax, -20(%rsp)
	movq	%r11, %rsi
	xorl	%r12d, %r12d
	movq	%r8, -16(%rsp)
	xorl	%r9d, %r9d
	leaq	(%r8,%rdx,4), %rdx
	.p2align 4,,10
	.p2align 3
.L16:
	cmpl	$1, %ebx
	je	.L19
	movq	-80(%rsp), %rax
	leaq	4(%rdx), %r10
	cmpq	%r10, %rcx
	setnb	%r8b
	cmpq	%rax, %rdx
	setnb	%al
	orb	%r8b, %al
	je	.L20
	leaq	4(%rsi), %r8
	movq	%rcx, %rax
	subq	%r8, %rax
	cmpq	$8, %rax
	jbe	.L20
	cmpl	$2, -32(%rsp)
	jbe	.L18
	movss	(%rdx), %xmm1
	xorl	%eax, %eax
	shufps	$0, %xmm1, %xmm1
	.p2align 4,,10
	.p2align 3
.L10:
	movups	(%rsi,%rax), %xmm0
	movups	(%rcx,%rax), %xmm2
	mulps	%xmm1, %xmm0
	addps	%xmm2, %xmm0
	movups	%xmm0, (%rcx,%rax)
	addq	$16, %rax
	cmpq	%r13, %rax
	jne	.L10
	movl	-28(%rsp), %r14d
	cmpl	%ebx, %r14d
	je	.L8
	movl	-24(%rsp), %r8d
	movl	%r8d, %eax
	cmpl	$1, %r8d
	je	.L17
	movl	%r14d, -36(%rsp)
	movl	%r14d, %r8d
.L9:
	movq	-48(%rsp), %r14
	movss	(%rdx), %xmm1
	addq	%r8, %r14
	addq	%r12, %r8
	shufps	$0xe0, %xmm1, %xmm1
	movq	(%r11,%r8,4), %xmm0
	leaq	0(%rbp,%r14,4), %r14
	mulps	%xmm1, %xmm0
	movq	(%r14), %xmm1
	addps	%xmm0, %xmm1
	movlps	%xmm1, (%r14)
	testb	$1, %al
	je	.L8
	movl	-36(%rsp), %r14d
	andl	$-2, %eax
	addl	%r14d, %eax
.L5:
	leal	(%r15,%rax), %r8d
	addl	%r9d, %eax
	movslq	%r8d, %r8
	cltq
	movss	(%r11,%rax,4), %xmm0
	leaq	0(%rbp,%r8,4), %r8
	mulss	(%rdx), %xmm0
	addss	(%r8), %xmm0
	movss	%xmm0, (%r8)
.L8:
	movq	-56(%rsp), %rax
	movq	%r10, %rdx
	addl	%ebx, %r9d
	addq	%rax, %rsi
	movq	-64(%rsp), %rax
	addq	%rax, %r12
	movq	-72(%rsp), %rax
	cmpq	%rax, %r10
	jne	.L16
	movl	-20(%rsp), %eax
	movq	-56(%rsp), %rsi
	addl	%ebx, %r15d
	movq	-64(%rsp), %r9
	addq	%rsi, -72(%rsp)
	addl	$1, %eax
	addq	%r9, -48(%rsp)
	movq	-16(%rsp), %r8
	addq	%rsi, %rcx
	addq	%rsi, -80(%rsp)
	addq	%rsi, %rdi
	cmpl	%eax, %ebx
	jne	.L3
	popq	%rbx
	.cfi_remember_state
	.cfi_def_cfa_offset 48
	popq	%rbp
	.cfi_def_cfa_offset 40
	popq	%r12
	.cfi_def_cfa_offset 32
	popq	%r13
	.cfi_def_cfa_offset 24
	popq	%r14
	.cfi_def_cfa_offset 16
	popq	%r15
	.cfi_def_cfa_offset 8
	ret
	.p2align 4,,10
	.p2align 3
.L20:
	.cfi_restore_state
	movq	%rsi, %r8
	movq	%rcx, %rax
	.p2align 4,,10
	.p2align 3
.L7:
	movss	(%rdx), %xmm0
	mulss	(%r8), %xmm0
	addq	$4, %rax
	addq	$4, %r8
	addss	-4(%rax), %xmm0
	movss	%xmm0, -4(%rax)
	cmpq	%rax, %rdi
	jne	.L7
	jmp	.L8
	.p2align 4,,10
	.p2align 3
.L19:
	movq	%rsi, %r8
	movq	%rcx, %rax
	leaq	4(%rdx), %r10
	jmp	.L7
.L18:
	movl	$0, -36(%rsp)
	movl	%ebx, %eax
	xorl	%r8d, %r8d
	jmp	.L9
.L17:
	movl	%r14d, %eax
	jmp	.L5
.L31:
	.cfi_def_cfa_offset 8
	.cfi_restore 3
	.cfi_restore 6
	.cfi_restore 12
	.cfi_restore 13
	.cfi_restore 14
	.cfi_restore 15
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
