#!/bin/bash
# Runs this crate's kernel tests under the Bochs emulator on a CPU model with AVX-512; see README.md.
set -euo pipefail
work=${WORK:-/tmp/pando-emulate}
model=${MODEL:-tigerlake}
limit=${LIMIT:-1500}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work/root/bin" "$work/iso/boot/grub" "$work/deb"
cd "$work"

# 1. A Linux kernel and a shell, unpacked, not installed.
if [ ! -e deb/done ]; then
  kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  (cd deb && apt-get download "$kernel" busybox-static && for d in *.deb; do dpkg -x "$d" .; done && touch done)
fi
cp deb/boot/vmlinuz-* iso/boot/vmlinuz
cp deb/bin/busybox root/bin/busybox

# 2. The tests, statically linked.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$work/target}
built=$(cd "$here/.." && RUSTFLAGS="-C target-feature=+crt-static" cargo test --target x86_64-unknown-linux-gnu \
  --test equal --test golden --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
for exe in $built; do
  strip -o "root/$(basename "$exe" | sed 's/-[0-9a-f]*$//')" "$exe"
done

# 3. A disc image that boots into them.
cat > root/init <<'INIT'
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox grep -m1 'model name' /proc/cpuinfo
/bin/busybox grep -m1 -o 'avx512[a-z0-9_]*' /proc/cpuinfo
export PROPTEST_CASES=CASES RUST_BACKTRACE=0
for t in equal golden; do
  /$t --nocapture --test-threads=1
  echo "EXIT $t $?"
done
echo EMULATION-DONE
/bin/busybox poweroff -f
INIT
sed -i "s/=CASES/=${CASES:-30}/" root/init
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet | gzip -1) > iso/boot/initrd
cat > iso/boot/grub/grub.cfg <<'GRUB'
set timeout=0
menuentry pando {
  linux /boot/vmlinuz console=ttyS0,115200 rdinit=/init panic=1 nokaslr mitigations=off tsc=reliable quiet
  initrd /boot/initrd
}
GRUB
grub-mkrescue -o boot.iso iso > mkrescue.log 2>&1

# 4. The emulator. Its screen needs a terminal, so `script` gives it one.
cat > bochsrc <<RC
cpu: model=$model, count=1, ips=50000000, reset_on_triple_fault=0, ignore_bad_msrs=1
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
: > serial.txt
TERM=xterm LINES=40 COLUMNS=120 timeout "$limit" script -qfec "bochs -q -f $work/bochsrc" screen.txt < /dev/null > /dev/null 2>&1 &
emulator=$!
while kill -0 "$emulator" 2> /dev/null && ! grep -q -e EMULATION-DONE -e 'Kernel panic' serial.txt; do sleep 2; done
kill "$emulator" 2> /dev/null || true
cat serial.txt
! grep -q -e 'FAILED' -e 'avx512 cannot run' -e 'Kernel panic' serial.txt
[ "$(grep -c -e '^EXIT [a-z]* 0' serial.txt)" = 2 ]
