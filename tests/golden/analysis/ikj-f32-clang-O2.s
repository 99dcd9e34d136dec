	.text
	.file	"ptr.c"
	.globl	product                         # -- Begin function product
	.p2align	4, 0x90
	.type	product,@function
product:                                # @product
	.cfi_startproc
# %bb.0:
	pushq	%rbp
	.cfi_def_cfa_offset 16
	pushq	%r15
	.cfi_def_cfa_offset 24
	pushq	%r14
	.cfi_def_cfa_offset 32
	pushq	%r13
	.cfi_def_cfa_offset 40
	pushq	%r12
	.cfi_def_cfa_offset 48
	pushq	%rbx
	.cfi_def_cfa_offset 56
	.cfi_offset %rbx, -56
	.cfi_offset %r12, -48
	.cfi_offset %r13, -40
	.cfi_offset %r14, -32
	.cfi_offset %r15, -24
	.cfi_offset %rbp, -16
	movq	%rcx, -88(%rsp)                 # 8-byte Spill
	movq	%rdx, -96(%rsp)                 # 8-byte Spill
	testl	%edi, %edi
	jle	.LBB0_16
# %bb.1:
	movl	%edi, %r13d
	movl	%edi, %r15d
	movl	%r15d, %eax
	andl	$-8, %eax
	movq	%rax, -48(%rsp)                 # 8-byte Spill
	movq	%r15, %rax
	negq	%rax
	movq	%rax, -16(%rsp)                 # 8-byte Spill
	movq	-96(%rsp), %rax                 # 8-byte Reload
	addq	$16, %rax
	movq	%rax, -64(%rsp)                 # 8-byte Spill
	leaq	(,%r15,4), %r14
	movq	-88(%rsp), %rax                 # 8-byte Reload
	leaq	16(%rax), %rbx
	movq	%r14, -80(%rsp)                 # 8-byte Spill
	andq	$-32, %r14
	addq	$4, %rax
	xorl	%edx, %edx
	movl	%edi, -100(%rsp)                # 4-byte Spill
	jmp	.LBB0_2
	.p2align	4, 0x90
.LBB0_15:                               #   in Loop: Header=BB0_2 Depth=1
	movq	-56(%rsp), %rdx                 # 8-byte Reload
	addq	$1, %rdx
	movq	-80(%rsp), %rcx                 # 8-byte Reload
	addq	%rcx, %rbx
	addq	%rcx, %rax
	cmpq	%r15, %rdx
	je	.LBB0_16
.LBB0_2:                                # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_3 Depth 2
                                        #       Child Loop BB0_9 Depth 3
                                        #       Child Loop BB0_17 Depth 3
	movq	%rdx, -56(%rsp)                 # 8-byte Spill
	movq	%rdx, %rdi
	imulq	%r15, %rdi
	movq	-88(%rsp), %rdx                 # 8-byte Reload
	leaq	(%rdx,%rdi,4), %rcx
	movq	%rcx, -24(%rsp)                 # 8-byte Spill
	leaq	(%rdi,%r15), %rcx
	leaq	(%rdx,%rcx,4), %rcx
	movq	%rcx, -32(%rsp)                 # 8-byte Spill
	movq	%rdi, -72(%rsp)                 # 8-byte Spill
	leaq	1(%rdi), %rcx
	movq	%rcx, -40(%rsp)                 # 8-byte Spill
	movq	-96(%rsp), %rdx                 # 8-byte Reload
	movq	-64(%rsp), %r12                 # 8-byte Reload
	xorl	%r9d, %r9d
	jmp	.LBB0_3
	.p2align	4, 0x90
.LBB0_14:                               #   in Loop: Header=BB0_3 Depth=2
	addq	$1, %r9
	movq	-80(%rsp), %rcx                 # 8-byte Reload
	addq	%rcx, %r12
	addq	%rcx, %rdx
	cmpq	%r15, %r9
	je	.LBB0_15
.LBB0_3:                                #   Parent Loop BB0_2 Depth=1
                                        # =>  This Loop Header: Depth=2
                                        #       Child Loop BB0_9 Depth 3
                                        #       Child Loop BB0_17 Depth 3
	movq	%r9, %r8
	imulq	%r15, %r8
	movq	-72(%rsp), %rcx                 # 8-byte Reload
	leaq	(%r9,%rcx), %rbp
	cmpl	$8, %r13d
	jae	.LBB0_5
# %bb.4:                                #   in Loop: Header=BB0_3 Depth=2
	xorl	%r10d, %r10d
.LBB0_11:                               #   in Loop: Header=BB0_3 Depth=2
	movq	%r10, %rdi
	testb	$1, %r15b
	je	.LBB0_13
# %bb.12:                               #   in Loop: Header=BB0_3 Depth=2
	movss	(%rsi,%rbp,4), %xmm0            # xmm0 = mem[0],zero,zero,zero
	addq	%r10, %r8
	movq	-72(%rsp), %rcx                 # 8-byte Reload
	leaq	(%r10,%rcx), %r11
	movq	-96(%rsp), %rdi                 # 8-byte Reload
	mulss	(%rdi,%r8,4), %xmm0
	movq	-88(%rsp), %rcx                 # 8-byte Reload
	addss	(%rcx,%r11,4), %xmm0
	movss	%xmm0, (%rcx,%r11,4)
	movq	%r10, %rdi
	orq	$1, %rdi
.LBB0_13:                               #   in Loop: Header=BB0_3 Depth=2
	notq	%r10
	cmpq	-16(%rsp), %r10                 # 8-byte Folded Reload
	je	.LBB0_14
	.p2align	4, 0x90
.LBB0_17:                               #   Parent Loop BB0_2 Depth=1
                                        #     Parent Loop BB0_3 Depth=2
                                        # =>    This Inner Loop Header: Depth=3
	movss	(%rsi,%rbp,4), %xmm0            # xmm0 = mem[0],zero,zero,zero
	mulss	(%rdx,%rdi,4), %xmm0
	addss	-4(%rax,%rdi,4), %xmm0
	movss	%xmm0, -4(%rax,%rdi,4)
	movss	(%rsi,%rbp,4), %xmm0            # xmm0 = mem[0],zero,zero,zero
	mulss	4(%rdx,%rdi,4), %xmm0
	addss	(%rax,%rdi,4), %xmm0
	movss	%xmm0, (%rax,%rdi,4)
	addq	$2, %rdi
	cmpq	%rdi, %r15
	jne	.LBB0_17
	jmp	.LBB0_14
	.p2align	4, 0x90
.LBB0_5:                                #   in Loop: Header=BB0_3 Depth=2
	leaq	(%r8,%r15), %rdi
	movq	-96(%rsp), %rcx                 # 8-byte Reload
	leaq	(%rcx,%rdi,4), %r10
	leaq	(%rcx,%r8,4), %rcx
	movq	%rcx, -8(%rsp)                  # 8-byte Spill
	movq	-40(%rsp), %rcx                 # 8-byte Reload
	leaq	(%rcx,%r9), %rdi
	leaq	(%rsi,%rdi,4), %rdi
	leaq	(%rsi,%rbp,4), %r13
	movq	-24(%rsp), %rcx                 # 8-byte Reload
	cmpq	%rdi, %rcx
	setb	%r11b
	movq	-32(%rsp), %rdi                 # 8-byte Reload
	cmpq	%rdi, %r13
	setb	%r13b
	cmpq	%r10, %rcx
	setb	%cl
	cmpq	%rdi, -8(%rsp)                  # 8-byte Folded Reload
	setb	%dil
	testb	%r13b, %r11b
	jne	.LBB0_6
# %bb.7:                                #   in Loop: Header=BB0_3 Depth=2
	movl	$0, %r10d
	andb	%dil, %cl
	movl	-100(%rsp), %r13d               # 4-byte Reload
	jne	.LBB0_11
# %bb.8:                                #   in Loop: Header=BB0_3 Depth=2
	movss	(%rsi,%rbp,4), %xmm0            # xmm0 = mem[0],zero,zero,zero
	shufps	$0, %xmm0, %xmm0                # xmm0 = xmm0[0,0,0,0]
	xorl	%edi, %edi
	.p2align	4, 0x90
.LBB0_9:                                #   Parent Loop BB0_2 Depth=1
                                        #     Parent Loop BB0_3 Depth=2
                                        # =>    This Inner Loop Header: Depth=3
	movups	-16(%r12,%rdi), %xmm1
	movups	(%r12,%rdi), %xmm2
	movups	-16(%rbx,%rdi), %xmm3
	movups	(%rbx,%rdi), %xmm4
	mulps	%xmm0, %xmm1
	addps	%xmm3, %xmm1
	mulps	%xmm0, %xmm2
	addps	%xmm4, %xmm2
	movups	%xmm1, -16(%rbx,%rdi)
	movups	%xmm2, (%rbx,%rdi)
	addq	$32, %rdi
	cmpq	%rdi, %r14
	jne	.LBB0_9
# %bb.10:                               #   in Loop: Header=BB0_3 Depth=2
	movq	-48(%rsp), %rcx                 # 8-byte Reload
	movq	%rcx, %r10
	cmpq	%r15, %rcx
	je	.LBB0_14
	jmp	.LBB0_11
.LBB0_6:                                #   in Loop: Header=BB0_3 Depth=2
	xorl	%r10d, %r10d
	movl	-100(%rsp), %r13d               # 4-byte Reload
	jmp	.LBB0_11
.LBB0_16:
	popq	%rbx
	.cfi_def_cfa_offset 48
	popq	%r12
	.cfi_def_cfa_offset 40
	popq	%r13
	.cfi_def_cfa_offset 32
	popq	%r14
	.cfi_def_cfa_offset 24
	popq	%r15
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	retq
.Lfunc_end0:
	.size	product, .Lfunc_end0-product
	.cfi_endproc
                                        # -- End function
	.globl	run                             # -- Begin function run
	.p2align	4, 0x90
	.type	run,@function
run:                                    # @run
	.cfi_startproc
# %bb.0:
	movl	size(%rip), %edi
	movl	$a, %esi
	movl	$b, %edx
	movl	$c, %ecx
	jmp	product                         # TAILCALL
.Lfunc_end1:
	.size	run, .Lfunc_end1-run
	.cfi_endproc
                                        # -- End function
	.type	size,@object                    # @size
	.data
	.globl	size
	.p2align	2
size:
	.long	17
	.size	size, 4

	.type	a,@object                       # @a
	.bss
	.globl	a
	.p2align	4
a:
	.zero	2116
	.size	a, 2116

	.type	b,@object                       # @b
	.globl	b
	.p2align	4
b:
	.zero	2116
	.size	b, 2116

	.type	c,@object                       # @c
	.globl	c
	.p2align	4
c:
	.zero	2116
	.size	c, 2116

	.section	".note.GNU-stack","",@progbits
