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
	movq	%rdx, -16(%rsp)                 # 8-byte Spill
	testl	%edi, %edi
	jle	.LBB0_9
# %bb.1:
	movl	%edi, %r8d
	movl	%r8d, %r9d
	andl	$-2, %r9d
	leaq	4(%rsi), %rax
	leaq	(,%r8,4), %r10
	leaq	(,%r8,8), %r11
	xorl	%r15d, %r15d
	jmp	.LBB0_2
	.p2align	4, 0x90
.LBB0_8:                                #   in Loop: Header=BB0_2 Depth=1
	movq	-8(%rsp), %r15                  # 8-byte Reload
	addq	$1, %r15
	addq	%r10, %rax
	cmpq	%r8, %r15
	je	.LBB0_9
.LBB0_2:                                # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_3 Depth 2
                                        #       Child Loop BB0_11 Depth 3
	movq	%r15, -8(%rsp)                  # 8-byte Spill
	imulq	%r8, %r15
	movq	-16(%rsp), %r14                 # 8-byte Reload
	xorl	%r13d, %r13d
	jmp	.LBB0_3
	.p2align	4, 0x90
.LBB0_7:                                #   in Loop: Header=BB0_3 Depth=2
	addq	$1, %r13
	addq	$4, %r14
	cmpq	%r8, %r13
	je	.LBB0_8
.LBB0_3:                                #   Parent Loop BB0_2 Depth=1
                                        # =>  This Loop Header: Depth=2
                                        #       Child Loop BB0_11 Depth 3
	leaq	(%r15,%r13), %rbx
	movss	(%rcx,%rbx,4), %xmm0            # xmm0 = mem[0],zero,zero,zero
	cmpl	$1, %edi
	jne	.LBB0_10
# %bb.4:                                #   in Loop: Header=BB0_3 Depth=2
	xorl	%ebp, %ebp
	jmp	.LBB0_5
	.p2align	4, 0x90
.LBB0_10:                               #   in Loop: Header=BB0_3 Depth=2
	movq	%r14, %r12
	xorl	%ebp, %ebp
	.p2align	4, 0x90
.LBB0_11:                               #   Parent Loop BB0_2 Depth=1
                                        #     Parent Loop BB0_3 Depth=2
                                        # =>    This Inner Loop Header: Depth=3
	movss	-4(%rax,%rbp,4), %xmm1          # xmm1 = mem[0],zero,zero,zero
	mulss	(%r12), %xmm1
	addss	%xmm0, %xmm1
	movss	%xmm1, (%rcx,%rbx,4)
	movss	(%rax,%rbp,4), %xmm0            # xmm0 = mem[0],zero,zero,zero
	mulss	(%r12,%r10), %xmm0
	addss	%xmm1, %xmm0
	movss	%xmm0, (%rcx,%rbx,4)
	addq	$2, %rbp
	addq	%r11, %r12
	cmpq	%rbp, %r9
	jne	.LBB0_11
.LBB0_5:                                #   in Loop: Header=BB0_3 Depth=2
	testb	$1, %r8b
	je	.LBB0_7
# %bb.6:                                #   in Loop: Header=BB0_3 Depth=2
	leaq	(%r15,%rbp), %rdx
	movss	(%rsi,%rdx,4), %xmm1            # xmm1 = mem[0],zero,zero,zero
	imulq	%r8, %rbp
	addq	%r13, %rbp
	movq	-16(%rsp), %rdx                 # 8-byte Reload
	mulss	(%rdx,%rbp,4), %xmm1
	addss	%xmm0, %xmm1
	movss	%xmm1, (%rcx,%rbx,4)
	jmp	.LBB0_7
.LBB0_9:
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
	.long	23                              # 0x17
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
