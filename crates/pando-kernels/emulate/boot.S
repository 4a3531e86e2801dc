# Multiboot header, 32-bit entry, long mode with SSE, AVX and AVX-512, exception stubs, the system call entry.
.set MAGIC, 0x1BADB002
.set FLAGS, 0x00010003
.section .boot, "ax"
.code32
.align 4
header:
  .long MAGIC, FLAGS, -(MAGIC + FLAGS)
  .long header, 0x100000, image_end, bss_end, entry
  .global entry
entry:
  cli
  mov $stack_top, %esp
  # Page tables: 1 GiB of 2 MiB pages onto themselves.
  mov $pdpt, %eax; or $3, %eax; mov %eax, pml4
  mov $pd, %eax; or $3, %eax; mov %eax, pdpt
  mov $pd, %edi; mov $0x83, %eax; mov $512, %ecx
1: mov %eax, (%edi); add $0x200000, %eax; add $8, %edi; loop 1b
  # PAE, OSFXSR, OSXMMEXCPT, OSXSAVE; then all of x87, SSE, AVX, AVX-512.
  mov $0x40620, %eax; mov %eax, %cr4
  mov $pml4, %eax; mov %eax, %cr3
  mov $0xC0000080, %ecx; rdmsr; or $0x101, %eax; wrmsr
  mov %cr0, %eax; and $~0x0C, %eax; or $0x80000022, %eax; mov %eax, %cr0
  lgdt gdt_pointer
  ljmp $8, $long_mode
.code64
long_mode:
  mov $16, %eax; mov %ax, %ds; mov %ax, %es; mov %ax, %ss
  mov $stack_top, %rsp
  fninit
  xor %ecx, %ecx; xor %edx, %edx; mov $0xE7, %eax; xsetbv
  # STAR: kernel code 8, LSTAR: the entry below, FMASK: nothing.
  mov $0xC0000081, %ecx; xor %eax, %eax; mov $0x00080008, %edx; wrmsr
  mov $0xC0000082, %ecx; mov $syscall_entry, %eax; xor %edx, %edx; wrmsr
  mov $0xC0000084, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr
  # Exceptions.
  mov $idt, %rdi; mov $stubs, %rax; mov $32, %ecx
2: mov %ax, (%rdi); movw $8, 2(%rdi); movw $0x8E00, 4(%rdi)
  mov %rax, %rdx; shr $16, %rdx; mov %dx, 6(%rdi); movl $0, 8(%rdi)
  add $16, %rdi; add $16, %rax; loop 2b
  lidt idt_pointer
  call start

syscall_entry:
  mov %rsp, user_rsp
  mov $syscall_stack, %rsp
  push %rcx; push %r11; push %rdi; push %rsi; push %rdx; push %r8; push %r9; push %r10
  mov %rdx, %rcx; mov %rsi, %rdx; mov %rdi, %rsi; mov %rax, %rdi
  call syscall_c
  pop %r10; pop %r9; pop %r8; pop %rdx; pop %rsi; pop %rdi; pop %r11; pop %rcx
  mov user_rsp, %rsp
  jmp *%rcx

.align 16
stubs:
.set v, 0
.rept 32
  .align 16
  pushq $v
  jmp fault_entry
  .set v, v + 1
.endr
fault_entry:
  pop %rdi
  mov %rsp, %rsi
  and $-16, %rsp
  call fault

.align 16
gdt: .quad 0, 0x00AF9A000000FFFF, 0x00CF92000000FFFF
gdt_pointer: .word 23; .long gdt
idt_pointer: .word 511; .quad idt

.section .rodata
.global program
.align 16
program: .incbin "program.elf"
.global program_end
program_end:

.section .bss
.align 4096
pml4: .skip 4096
pdpt: .skip 4096
pd: .skip 4096
idt: .skip 512
.align 16
.skip 16384
stack_top:
.skip 16384
syscall_stack:
.section .note.GNU-stack, "", @progbits
