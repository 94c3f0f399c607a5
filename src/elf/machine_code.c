/* Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; Arm Architecture Reference Manual for
 * A-profile, C4.1. */
#include "elf/machine_code.h"

#include "base/bytes.h"

#include <elf.h>

/* FF /2 with a ModR/M byte of the given mode, and a SIB byte or not, whose displacement fills the rest. */
static bool is_indirect_x86(const uint8_t *call, size_t size_bytes) {
    uint8_t mode = call[1] >> 6, operation = call[1] >> 3 & 7, base = call[1] & 7;
    if (call[0] != 0xff || operation != 2)
        return false;
    bool sib = mode != 3 && base == 4;
    size_t displacement = mode == 1 ? 1 : mode == 2 || (mode == 0 && base == 5) ? 4 : 0;
    if (sib && mode == 0 && size_bytes >= 3 && (call[2] & 7) == 5)
        displacement = 4;
    return size_bytes == 2 + (size_t)sib + displacement;
}

static enum machine_call call_x86(const uint8_t *before, uint64_t address, uint64_t *target) {
    const uint8_t *end = before + MACHINE_CODE_CALL_BYTES;
    if (end[-5] == 0xe8) {
        *target = address + (uint64_t)(int64_t)load_i32(end - 4);
        return MACHINE_CALL_DIRECT;
    }
    /* Through the global offset table (-fno-plt): only the linker could not know the target. */
    if (end[-6] == 0xff && end[-5] == 0x15)
        return MACHINE_CALL_IMPORTED;
    for (size_t size = 2; size <= MACHINE_CODE_CALL_BYTES; size++)
        if (is_indirect_x86(end - size, size))
            return MACHINE_CALL_INDIRECT;
    return MACHINE_CALL_NONE;
}

static uint64_t relative(uint64_t place, uint32_t field, unsigned bits) {
    int64_t offset = (int64_t)((uint64_t)field << (64 - bits)) >> (64 - bits);
    return place + (uint64_t)(offset * 4);
}

static enum machine_call call_aarch64(const uint8_t *before, uint64_t address, uint64_t *target) {
    uint32_t word = load_u32(before + MACHINE_CODE_CALL_BYTES - 4);
    if ((word & 0xfc000000) == 0x94000000) { /* BL */
        *target = relative(address - 4, word & 0x03ffffff, 26);
        return MACHINE_CALL_DIRECT;
    }
    /* BLR, and BLRA* with its pointer authentication. */
    bool indirect = (word & 0xfffffc1f) == 0xd63f0000 || (word & 0xfefff800) == 0xd63f0800;
    return indirect ? MACHINE_CALL_INDIRECT : MACHINE_CALL_NONE;
}

enum machine_call machine_code_call(uint16_t machine, const uint8_t before[MACHINE_CODE_CALL_BYTES], uint64_t address,
                                    uint64_t *target) {
    *target = 0;
    return machine == EM_X86_64    ? call_x86(before, address, target)
           : machine == EM_AARCH64 ? call_aarch64(before, address, target)
                                   : MACHINE_CALL_NONE;
}

/* E9 rel32, 0F 80 to 0F 8F rel32. EB rel8 leads out of a function only to a neighbour, as its last instruction. */
static bool jump_x86(const uint8_t *code, size_t left, uint64_t place, uint64_t *target) {
    if (left == 2 && code[0] == 0xeb) {
        *target = place + left + (uint64_t)(int64_t)(int8_t)code[1];
        return true;
    }
    size_t opcode = left >= 5 && code[0] == 0xe9 ? 1 : left >= 6 && code[0] == 0x0f && code[1] >> 4 == 8 ? 2 : 0;
    if (opcode == 0)
        return false;
    *target = place + opcode + 4 + (uint64_t)(int64_t)load_i32(code + opcode);
    return true;
}

static bool jump_aarch64(const uint8_t *code, size_t left, uint64_t place, uint64_t *target) {
    uint32_t word = left >= 4 ? load_u32(code) : 0;
    if ((word & 0xfc000000) == 0x14000000) /* B */
        *target = relative(place, word & 0x03ffffff, 26);
    else if ((word & 0xff000000) == 0x54000000 || (word & 0x7e000000) == 0x34000000) /* B.cond, CBZ, CBNZ */
        *target = relative(place, word >> 5 & 0x7ffff, 19);
    else if ((word & 0x7e000000) == 0x36000000) /* TBZ, TBNZ */
        *target = relative(place, word >> 5 & 0x3fff, 14);
    else
        return false;
    return true;
}

size_t machine_code_jumps(uint16_t machine, const uint8_t *code, size_t size_bytes, uint64_t start, uint64_t *targets,
                          size_t capacity) {
    size_t count = 0, step = machine == EM_AARCH64 ? 4 : 1;
    for (size_t i = 0; i < size_bytes; i += step) {
        uint64_t target = 0;
        bool jump = machine == EM_AARCH64 ? jump_aarch64(code + i, size_bytes - i, start + i, &target)
                                          : jump_x86(code + i, size_bytes - i, start + i, &target);
        if (!jump || target - start < size_bytes)
            continue;
        if (count < capacity)
            targets[count] = target;
        count++;
    }
    return count;
}

/* Maybe endbr64 (F3 0F 1E FA), maybe bnd (F2), then jmp *displacement(%rip) (FF 25 rel32). */
static uint64_t stub_x86(const uint8_t *code, uint64_t address) {
    size_t at = load_u32(code) == 0xfa1e0ff3 ? 4 : 0;
    at += code[at] == 0xf2;
    if (code[at] != 0xff || code[at + 1] != 0x25)
        return 0;
    return address + at + 6 + (uint64_t)(int64_t)load_i32(code + at + 2);
}

/* Maybe BTI, then ADRP x16, page; LDR x17, [x16, #offset] */
static uint64_t stub_aarch64(const uint8_t *code, uint64_t address) {
    size_t at = load_u32(code) == 0xd503245f ? 4 : 0;
    uint32_t page = load_u32(code + at), load = load_u32(code + at + 4);
    if ((page & 0x9f00001f) != 0x90000010 || (load & 0xffc003ff) != 0xf9400211)
        return 0;
    uint32_t field = (page >> 5 & 0x7ffff) << 2 | (page >> 29 & 3);
    int64_t pages = (int64_t)((uint64_t)field << 43) >> 43;
    return ((address + at) & ~UINT64_C(4095)) + (uint64_t)(pages * 4096) + 8 * (uint64_t)(load >> 10 & 0xfff);
}

uint64_t machine_code_stub(uint16_t machine, const uint8_t code[MACHINE_CODE_STUB_BYTES], uint64_t address) {
    return machine == EM_X86_64 ? stub_x86(code, address) : machine == EM_AARCH64 ? stub_aarch64(code, address) : 0;
}

bool machine_code_system_call(uint16_t machine, const uint8_t before[MACHINE_CODE_CALL_BYTES]) {
    const uint8_t *end = before + MACHINE_CODE_CALL_BYTES;
    if (machine == EM_AARCH64)
        return load_u32(end - 4) == 0xd4000001; /* SVC #0 */
    return machine == EM_X86_64 && end[-2] == 0x0f && end[-1] == 0x05;
}
