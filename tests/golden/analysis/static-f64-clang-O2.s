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
	shlq	$6, %rcx
	leaq	(%rcx,%rsi,8), %r9
	addq	$c, %r9
	movsd	c(%rcx,%rsi,8), %xmm0           # xmm0 = mem[0],zero
	movl	$1, %ecx
	movq	%rdi, %rdx
	.p2align	4, 0x90
.LBB0_3:                                #   Parent Loop BB0_1 Depth=1
                                        #     Parent Loop BB0_2 Depth=2
                                        # =>    This Inner Loop Header: Depth=3
	movsd	-8(%rax,%rcx,8), %xmm1          # xmm1 = mem[0],zero
	mulsd	(%rdx), %xmm1
	addsd	%xmm0, %xmm1
	movsd	(%rax,%rcx,8), %xmm0            # xmm0 = mem[0],zero
	mulsd	320(%rdx), %xmm0
	addsd	%xmm1, %xmm0
	addq	$2, %rcx
	addq	$640, %rdx                      # imm = 0x280
	cmpq	$41, %rcx
	jne	.LBB0_3
# %bb.4:                                #   in Loop: Header=BB0_2 Depth=2
	movsd	%xmm0, (%r9)
	addq	$1, %rsi
	addq	$8, %rdi
	cmpq	$40, %rsi
	jne	.LBB0_2
# %bb.5:                                #   in Loop: Header=BB0_1 Depth=1
	addq	$1, %r8
	addq	$320, %rax                      # imm = 0x140
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
	.zero	12800
	.size	a, 12800

	.type	b,@object                       # @b
	.globl	b
	.p2align	4
b:
	.zero	12800
	.size	b, 12800

	.type	c,@object                       # @c
	.globl	c
	.p2align	4
c:
	.zero	12800
	.size	c, 12800

	.section	".note.GNU-stack","",@progbits
