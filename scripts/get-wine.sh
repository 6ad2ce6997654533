#!/usr/bin/env bash
# Prints the path of a program that runs programs for Windows with Debian's wine. If wine is not there, installs it. The cache has the
# directory that wine creates when it is first used.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./debian.sh

wine=/usr/lib/wine/wine64
have_all() { [ -x "$wine" ] && command -v x86_64-w64-mingw32-ld >/dev/null; }

if ! have_all; then
	as_root=()
	[ "$(id -u)" -eq 0 ] || as_root=(sudo)
	if command -v apt-get >/dev/null && command -v "${as_root[0]:-true}" >/dev/null; then
		echo "installing wine64" >&2
		"${as_root[@]}" apt-get update -q >&2
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
			apt-get install -q -y --no-install-recommends wine64 binutils-mingw-w64-x86-64 >&2
	fi
	have_all || { echo "make wine needs it: apt-get install -y wine64 binutils-mingw-w64-x86-64" >&2; exit 1; }
fi

# Go programs need a library for random bytes that wine 8 does not have. The one that is built here takes them from the processor.
fetch() {
	mkdir -p "$work/got"
	export WINEPREFIX=$work/got/prefix WINEDEBUG=-all
	timeout 120 "$wine" wineboot --init
	x86_64-w64-mingw32-as -o "$work/prng.o" - <<-'END'
		.intel_syntax noprefix
		.globl ProcessPrng
		.section .drectve
		.ascii " -export:ProcessPrng"
		.text
		ProcessPrng:
		test rdx, rdx
		jz 2f
		1: rdrand rax
		jnc 1b
		mov [rcx], al
		inc rcx
		dec rdx
		jnz 1b
		2: mov eax, 1
		ret
	END
	[ -e "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" ] ||
		x86_64-w64-mingw32-ld -shared --entry 0 -o "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" "$work/prng.o"
	timeout 60 "${wine%/*}/wineserver64" -k || true
	cat >"$work/got/wine" <<-END
		#!/bin/bash
		export WINEPREFIX=\$(dirname "\$0")/prefix WINEDEBUG=-all
		exec $wine "\$@"
	END
	chmod +x "$work/got/wine"
}

cached Wine wine
echo "$target/wine"
