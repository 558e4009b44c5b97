// SPDX-License-Identifier: Apache-2.0
// The kernel that writes and tests patterns on a CUDA device, as text for the driver: no compiler of
// CUDA's is needed. tests/cli/pattern_ptx.py assembles it and carries it out, thread by thread.
#pragma once

namespace program {

/// One byte of a value for each `unit`, all threads sharing them. The first `paged` units are the
/// 16 bytes of the first and last word of each 512 words, `last` the value's last word; the others
/// are the bytes from `shift` on, counted in units. A byte is of the word `first` + its number *
/// the pattern's step. Where `wrong` is null it is written, else the least offset of a byte that
/// differs goes there.
inline constexpr char pattern_ptx[] = R"ptx(
.version 6.4
.target sm_52
.address_size 64

.visible .entry holdfast_pattern(
    .param .u64 p_at, .param .u64 p_units, .param .u64 p_last, .param .u64 p_paged,
    .param .u64 p_shift, .param .u64 p_first, .param .u64 p_wrong)
{
    .reg .pred %p, %tests;
    .reg .b32 %r<3>;
    .reg .b64 %at, %units, %last, %paged, %shift, %first, %wrong;
    .reg .b64 %stride, %u, %b, %w, %v, %x;

    ld.param.u64 %at, [p_at];
    ld.param.u64 %units, [p_units];
    ld.param.u64 %last, [p_last];
    ld.param.u64 %paged, [p_paged];
    ld.param.u64 %shift, [p_shift];
    ld.param.u64 %first, [p_first];
    ld.param.u64 %wrong, [p_wrong];
    cvta.to.global.u64 %at, %at;
    setp.ne.u64 %tests, %wrong, 0;
    cvta.to.global.u64 %wrong, %wrong;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %u, %r0, %r1;
    cvt.u64.u32 %x, %r2;
    add.u64 %u, %u, %x;
    mov.u32 %r0, %nctaid.x;
    mul.wide.u32 %stride, %r0, %r1;
loop:
    setp.ge.u64 %p, %u, %units;
    @%p bra end;
    add.u64 %b, %u, %shift;
    setp.ge.u64 %p, %u, %paged;
    @%p bra byte;
    shr.u64 %w, %u, 4;
    shl.b64 %w, %w, 9;
    and.b64 %x, %u, 8;
    setp.eq.u64 %p, %x, 0;
    @%p bra word;
    add.u64 %w, %w, 511;
    min.u64 %w, %w, %last;
word:
    shl.b64 %b, %w, 3;
    and.b64 %x, %u, 7;
    or.b64 %b, %b, %x;
byte:
    shr.u64 %w, %b, 3;
    mul.lo.u64 %v, %w, 0x9E3779B97F4A7C15;
    add.u64 %v, %v, %first;
    and.b64 %x, %b, 7;
    shl.b64 %x, %x, 3;
    cvt.u32.u64 %r0, %x;
    shr.u64 %v, %v, %r0;
    and.b64 %v, %v, 255;
    add.u64 %x, %at, %b;
    @%tests bra test;
    st.global.u8 [%x], %v;
    bra next;
test:
    ld.global.u8 %x, [%x];
    setp.eq.u64 %p, %x, %v;
    @%p bra next;
    red.global.min.u64 [%wrong], %b;
next:
    add.u64 %u, %u, %stride;
    bra loop;
end:
    ret;
}
)ptx";

}  // namespace program
