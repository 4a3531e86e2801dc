// A kernel just large enough to run one static Linux program on an emulated CPU: it turns on AVX-512, loads the
// program and answers the few system calls of a single-threaded Rust program. Everything runs in ring 0 with
// identity-mapped memory; output goes to the first serial port.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

extern u8 program[], program_end[];
u64 user_rsp;
static u64 heap = 0x14000000, maps = 0x18000000;

static void out(u16 port, u8 v) { __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port)); }
static u8 in(u16 port) { u8 v; __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port)); return v; }
static void put(u8 c) {
  while (!(in(0x3FD) & 0x20)) {} // Until the sender is empty.
  out(0x3F8, c);
}
static void say(const char *s) { while (*s) put(*s++); }
static void hex(u64 v) { for (int i = 60; i >= 0; i -= 4) put("0123456789abcdef"[v >> i & 15]); }
static void wrmsr(u32 msr, u64 v) { __asm__ volatile("wrmsr" : : "c"(msr), "a"((u32)v), "d"((u32)(v >> 32))); }
static void copy(u8 *to, const u8 *from, u64 n) { __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory"); }
static void zero(u8 *to, u64 n) { __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(0) : "memory"); }

static void stop(u64 code) {
  say("EXIT ");
  hex(code);
  say("\n");
  for (const char *s = "Shutdown"; *s; s++) out(0x8900, *s);
  for (;;) __asm__ volatile("hlt");
}

// Vector and error code come from the stubs in boot.S.
void fault(u64 vector, u64 *frame) {
  say("FAULT ");
  hex(vector);
  say(" error/rip ");
  hex(frame[0]);
  say(" ");
  hex(frame[1]);
  say("\n");
  stop(99);
}

u64 syscall_c(u64 n, u64 a, u64 b, u64 c) {
  switch (n) {
  case 1: // write
    for (u64 i = 0; i < c; i++) put(((u8 *)b)[i]);
    return c;
  case 20: { // writev
    u64 *v = (u64 *)b, total = 0;
    for (u64 i = 0; i < c; i++, v += 2) total += syscall_c(1, a, v[0], v[1]);
    return total;
  }
  case 9: { // mmap: always fresh zeroed memory
    u64 at = maps;
    maps += (b + 4095) & ~4095ul;
    if (maps > 0x1F000000) return -12;
    zero((u8 *)at, b);
    return at;
  }
  case 12: // brk
    if (a > heap && a < 0x18000000) { zero((u8 *)heap, a - heap); heap = a; }
    return heap;
  case 158: // arch_prctl
    if (a != 0x1002) return -22;
    wrmsr(0xC0000100, b);
    return 0;
  case 318: // getrandom
    for (u64 i = 0; i < b; i++) ((u8 *)a)[i] = i * 37 + 11;
    return b;
  case 60: case 231: // exit, exit_group
    stop(a);
  case 10: case 11: case 13: case 14: case 28: case 131: case 7: // mprotect munmap sigaction sigprocmask madvise sigaltstack poll
    return 0;
  case 218: // set_tid_address
    return 1;
  default:
    return -38;
  }
}

void start(void) {
  out(0x3FB, 0x83), out(0x3F8, 1), out(0x3F9, 0), out(0x3FB, 3); // 115,200 baud, 8 bits
  say("mini kernel\n");
  u64 *ph = (u64 *)(program + *(u64 *)(program + 32));
  u16 count = *(u16 *)(program + 56);
  u64 phdr = 0;
  for (u16 i = 0; i < count; i++, ph += 7) {
    if ((u32)ph[0] != 1) continue; // PT_LOAD
    copy((u8 *)ph[2], program + ph[1], ph[4]);
    zero((u8 *)ph[2] + ph[4], ph[5] - ph[4]);
    if (ph[1] == 0) phdr = ph[2] + *(u64 *)(program + 32);
  }
  static u64 random[2] = {1, 2};
  u64 *sp = (u64 *)0x13FF0000;
  u64 words[] = {1, (u64)"check", 0, 0, 3, phdr, 4, 56, 5, count, 6, 4096, 9, *(u64 *)(program + 24), 25, (u64)random,
                 11, 0, 12, 0, 13, 0, 14, 0, 23, 0, 16, 0, 17, 100, 0, 0};
  copy((u8 *)sp, (u8 *)words, sizeof words);
  say("start\n");
  __asm__ volatile("mov %0, %%rsp; xor %%edx, %%edx; jmp *%1" : : "r"(sp), "r"(*(u64 *)(program + 24)));
}
