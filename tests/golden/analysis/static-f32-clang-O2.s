	.text
	.file	"sta.c"
	.globl	run                             # -- Begin function run
	.p2align	4, 0x90
	.type	run,@function
run:                                    # @run
	.cfi_startproc
# %bb.0:
	movl	$a, %eax
	xorl	%r8d, %r8d
	.p2align	4, 0x90
.LBB0_1:                                # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_2 Depth 2
                                        #       Child Loop BB0_3 Depth 3
	movl	$b, %edi
	xorl	%esi, %esi
	.p2align	4, 0x90
.LBB0_2:                                #   Parent Loop BB0_1 Depth=1
                                        # =>  This Loop Header: Depth=2
                                        #       Child Loop BB0_3 Depth 3
	leaq	(%r8,%r8,4), %rcx
	shlq	$5, %rcx
	leaq	(%rcx,%rsi,4), %r9
	addq	$c, %r9
	movss	c(%rcx,%rsi,4), %xmm0           # xmm0 = mem[0],zero,zero,zero
	movl	$1, %ecx
	movq	%rdi, %rdx
	.p2align	4, 0x90
.LBB0_3:                                #   Parent Loop BB0_1 Depth=1
                                        #     Parent Loop BB0_2 Depth=2
                                        # =>    This Inner Loop Header: Depth=3
	movss	-4(%rax,%rcx,4), %xmm1          # xmm1 = mem[0],zero,zero,zero
	mulss	(%rdx), %xmm1
	addss	%xmm0, %xmm1
	movss	(%rax,%rcx,4), %xmm0            # xmm0 = mem[0],zero,zero,zero
	mulss	160(%rdx), %xmm0
	addss	%xmm1, %xmm0
	addq	$2, %rcx
	addq	$320, %rdx                      # imm = 0x140
	cmpq	$41, %rcx
	jne	.LBB0_3
# %bb.4:                                #   in Loop: Header=BB0_2 Depth=2
	movss	%xmm0, (%r9)
	addq	$1, %rsi
	addq	$4, %rdi
	cmpq	$40, %rsi
	jne	.LBB0_2
# %bb.5:                                #   in Loop: Header=BB0_1 Depth=1
	addq	$1, %r8
	addq	$160, %rax
	cmpq	$40, %r8
	jne	.LBB0_1
# %bb.6:
	retq
.Lfunc_end0:
	.size	run, .Lfunc_end0-run
	.cfi_endproc
                                        # -- End function
	.type	a,@object                       # @a
	.bss
	.globl	a
	.p2align	4
a:
	.zero	6400
	.size	a, 6400

	.type	b,@object                       # @b
	.globl	b
	.p2align	4
b:
	.zero	6400
	.size	b, 6400

	.type	c,@object                       # @c
	.globl	c
	.p2align	4
c:
	.zero	6400
	.size	c, 6400

	.section	".note.GNU-stack","",@progbits
