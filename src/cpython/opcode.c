#include "cpython/opcode.h"

static const struct opcode unknown[OPCODES] = {[0 ... OPCODES - 1] = {.family = OPCODE_HIDDEN, .enters = true}};

const struct opcode *opcode_table(uint32_t minor) {
    if (minor < OPCODE_FIRST_MINOR || minor > OPCODE_LAST_MINOR)
        return unknown;
    return opcode_tables[minor - OPCODE_FIRST_MINOR];
}

enum opcode_family opcode_family(uint32_t minor, uint8_t opcode) {
    return (enum opcode_family)opcode_table(minor)[opcode].family;
}
