# Enters a kernel without a C library, so that every address is the same on every machine.
	.globl	_start
_start:
	call	run
	movl	$60, %eax
	xorl	%edi, %edi
	syscall
	.section	.note.GNU-stack,"",@progbits
