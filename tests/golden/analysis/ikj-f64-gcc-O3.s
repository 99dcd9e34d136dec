	.file	"ptr.c"
	.text
	.p2align 4
	.globl	product
	.type	product, @function
product:
.LFB0:
	.cfi_startproc
	pushq	%r15
	.cfi_def_cfa_offset 16
	.cfi_offset 15, -16
	pushq	%r14
	.cfi_def_cfa_offset 24
	.cfi_offset 14, -24
	pushq	%r13
	.cfi_def_cfa_offset 32
	.cfi_offset 13, -32
	pushq	%r12
	.cfi_def_cfa_offset 40
	.cfi_offset 12, -40
	pushq	%rbp
	.cfi_def_cfa_offset 48
	.cfi_offset 6, -48
	pushq	%rbx
	.cfi_def_cfa_offset 56
	.cfi_offset 3, -56
	movq	%rsi, -32(%rsp)
	movq	%rcx, -24(%rsp)
	testl	%edi, %edi
	jle	.L1
	movslq	%edi, %rax
	movl	%edi, %ebp
	movl	%edi, %ebx
	movq	%rdx, %r13
	leaq	0(,%rax,8), %r14
	shrl	%ebp
	movl	%edi, %r12d
	andl	$-2, %ebx
	movq	%rax, -16(%rsp)
	leaq	(%rsi,%r14), %rax
	leaq	(%r14,%rcx), %r9
	movq	%rcx, %rsi
	movq	%rax, -56(%rsp)
	leal	-1(%rdi), %eax
	movq	%r9, %r15
	salq	$4, %rbp
	movl	%eax, -60(%rsp)
	xorl	%edx, %edx
	xorl	%eax, %eax
	xorl	%r11d, %r11d
	.p2align 4,,10
	.p2align 3
.L3:
	movq	-24(%rsp), %r10
	leal	(%rbx,%rdx), %r8d
	movl	%edx, -44(%rsp)
	movq	%r13, %rdi
	movq	-32(%rsp), %rcx
	movl	%r11d, -48(%rsp)
	movslq	%r8d, %r8
	movq	%rax, -40(%rsp)
	leaq	(%r10,%r8,8), %r8
	xorl	%r10d, %r10d
	leaq	(%rcx,%rax,8), %rcx
	.p2align 4,,10
	.p2align 3
.L13:
	cmpl	$1, -60(%rsp)
	jbe	.L14
	leaq	8(%rcx), %r11
	cmpq	%r11, %rsi
	setnb	%dl
	cmpq	%r15, %rcx
	setnb	%al
	orb	%dl, %al
	je	.L15
	leaq	8(%rdi), %rax
	cmpq	%rax, %rsi
	je	.L15
	movsd	(%rcx), %xmm1
	xorl	%eax, %eax
	unpcklpd	%xmm1, %xmm1
	.p2align 4,,10
	.p2align 3
.L7:
	movupd	(%rdi,%rax), %xmm0
	movupd	(%rsi,%rax), %xmm2
	mulpd	%xmm1, %xmm0
	addpd	%xmm2, %xmm0
	movups	%xmm0, (%rsi,%rax)
	addq	$16, %rax
	cmpq	%rbp, %rax
	jne	.L7
	cmpl	%r12d, %ebx
	je	.L6
	leal	(%r10,%rbx), %eax
	cltq
	movsd	0(%r13,%rax,8), %xmm0
	mulsd	(%rcx), %xmm0
	addsd	(%r8), %xmm0
	movsd	%xmm0, (%r8)
.L6:
	movq	-56(%rsp), %rax
	addq	%r14, %rdi
	movq	%r11, %rcx
	addl	%r12d, %r10d
	cmpq	%rax, %r11
	jne	.L13
	movl	-48(%rsp), %r11d
	movl	-44(%rsp), %edx
	addq	%r14, %rsi
	addq	%r14, %r9
	movq	-40(%rsp), %rax
	movq	-16(%rsp), %rdi
	addq	%r14, %r15
	addl	$1, %r11d
	addq	%r14, -56(%rsp)
	addl	%r12d, %edx
	addq	%rdi, %rax
	cmpl	%r11d, %r12d
	jne	.L3
.L1:
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
.L15:
	.cfi_restore_state
	movq	%rdi, %rdx
	movq	%rsi, %rax
	.p2align 4,,10
	.p2align 3
.L5:
	movsd	(%rcx), %xmm0
	mulsd	(%rdx), %xmm0
	addq	$8, %rax
	addq	$8, %rdx
	addsd	-8(%rax), %xmm0
	movsd	%xmm0, -8(%rax)
	cmpq	%r9, %rax
	jne	.L5
	jmp	.L6
	.p2align 4,,10
	.p2align 3
.L14:
	movq	%rdi, %rdx
	movq	%rsi, %rax
	leaq	8(%rcx), %r11
	jmp	.L5
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
