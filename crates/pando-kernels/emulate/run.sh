#!/bin/bash
# Runs check.rs under the Bochs emulator on a CPU model with AVX-512; see README.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-/tmp/pando-emulate}
model=${MODEL:-tigerlake}
limit=${LIMIT:-3000}
mkdir -p "$work/iso/boot/grub"

# The program: static, at a fixed address above the kernel. A package of its own, so that the test dependencies
# need not be built for it.
mkdir -p "$work/check"
cat > "$work/check/Cargo.toml" <<TOML
[package]
name = "check"
version = "0.0.0"
edition = "2024"
[[bin]]
name = "check"
path = "$here/check.rs"
[dependencies]
pando-kernels = { path = "$here/.." }
[profile.release]
panic = "abort"
[workspace]
TOML
cp "$here/../../../Cargo.lock" "$work/check/"
export CARGO_TARGET_DIR=$work/target
(cd "$work/check" && RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static -C link-arg=-no-pie -C link-arg=-Wl,--image-base=0x10000000" \
  cargo build --release --target x86_64-unknown-linux-gnu)
strip -o "$work/program.elf" "$work/target/x86_64-unknown-linux-gnu/release/check"

# The kernel and a disc that boots it.
cd "$work"
gcc -c -O1 -ffreestanding -mgeneral-regs-only -mno-red-zone -fno-stack-protector -fno-pic -fcf-protection=none \
  -fno-tree-loop-distribute-patterns -o mini.o "$here/mini.c"
gcc -c -fno-pic -Wa,-I"$work" -o boot.o "$here/boot.S"
ld -nostdlib -z max-page-size=4096 -T "$here/link.ld" -o mini.elf boot.o mini.o
objcopy -O binary mini.elf iso/boot/mini.bin
printf 'set timeout=0\nmenuentry pando { multiboot /boot/mini.bin\n boot\n }\n' > iso/boot/grub/grub.cfg
grub-mkrescue -o boot.iso iso > mkrescue.log 2>&1

# The emulator. Debian's build has a text screen, for which `script` gives it a terminal, and starts in its
# debugger, which the command file tells to go on.
cat > bochsrc <<RC
cpu: model=$model, count=1, ips=50000000, reset_on_triple_fault=0
memory: guest=512, host=512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$work/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial.txt
clock: sync=none
display_library: term
log: $work/bochs.log
panic: action=fatal
error: action=report
info: action=ignore
RC
echo c > commands
: > serial.txt
TERM=xterm script -qfec "echo \$\$ > $work/pid; exec timeout -s KILL $limit bochs-bin -q -f $work/bochsrc -rc $work/commands" \
  screen.txt < /dev/null > /dev/null 2>&1 &
script=$!
while kill -0 "$script" 2> /dev/null && ! grep -aq '^EXIT ' serial.txt; do sleep 2; done
kill -9 "$(cat pid)" 2> /dev/null || true
cat serial.txt
grep -aq 'Avx512' serial.txt && grep -aq '^EXIT 0000000000000000' serial.txt
