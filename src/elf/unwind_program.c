/* Call frame instructions (DWARF 4, 6.4.2 and 7.23), as far as they touch the canonical frame address, the return
 * address and the frame pointer. */
#include "elf/unwind_program.h"

#include <elf.h>
#include <string.h>

enum {
    REMEMBERED_MAX = 8,
    INSTRUCTIONS_MAX = 1 << 16, /* functions of a megabyte of code have some ten thousand */
};

enum cfa_instruction {
    CFA_NOP = 0x00,
    CFA_SET_LOC = 0x01,
    CFA_ADVANCE_LOC1 = 0x02,
    CFA_ADVANCE_LOC2 = 0x03,
    CFA_ADVANCE_LOC4 = 0x04,
    CFA_OFFSET_EXTENDED = 0x05,
    CFA_RESTORE_EXTENDED = 0x06,
    CFA_UNDEFINED = 0x07,
    CFA_SAME_VALUE = 0x08,
    CFA_REGISTER = 0x09,
    CFA_REMEMBER_STATE = 0x0a,
    CFA_RESTORE_STATE = 0x0b,
    CFA_DEF_CFA = 0x0c,
    CFA_DEF_CFA_REGISTER = 0x0d,
    CFA_DEF_CFA_OFFSET = 0x0e,
    CFA_DEF_CFA_EXPRESSION = 0x0f,
    CFA_EXPRESSION = 0x10,
    CFA_OFFSET_EXTENDED_SF = 0x11,
    CFA_DEF_CFA_SF = 0x12,
    CFA_DEF_CFA_OFFSET_SF = 0x13,
    CFA_VAL_OFFSET = 0x14,
    CFA_VAL_OFFSET_SF = 0x15,
    CFA_VAL_EXPRESSION = 0x16,
    CFA_NEGATE_RA_STATE = 0x2d, /* aarch64: the return address is signed from here on, or no more */
    CFA_GNU_ARGS_SIZE = 0x2e,
    CFA_ADVANCE_LOC = 0x40, /* in the upper two bits, an operand in the lower six */
    CFA_OFFSET = 0x80,
    CFA_RESTORE = 0xc0,
};

enum {
    OPERATION_DEREF = 0x06,
    OPERATION_BREG0 = 0x70,
    OPERATION_BREG31 = 0x8f,
};

enum rule_kind { RULE_SAME, RULE_UNDEFINED, RULE_OFFSET, RULE_UNKNOWN };

struct rule {
    enum rule_kind kind;
    int64_t offset;
};

/* What an instruction changes. */
struct state {
    bool cfa_known;
    bool dereferenced;
    bool linkage_stub; /* the offset depends on where in its 16 bytes a stub stands */
    uint64_t cfa_register;
    int64_t cfa_offset;
    struct rule return_address;
    struct rule frame_pointer;
};

struct machine {
    const struct unwind_registers *registers;
    const struct unwind_cie *cie;
    struct state state;
    struct state initial;
    struct state remembered[REMEMBERED_MAX];
    size_t depth;
    uint64_t location;
};

uint8_t bytes_u8(struct bytes *bytes) {
    uint8_t value = 0;
    if (bytes->failed || bytes->end - bytes->at < 1)
        bytes->failed = true;
    else
        value = *bytes->at++;
    return value;
}

static void take(struct bytes *bytes, void *value, size_t size_bytes) {
    memset(value, 0, size_bytes);
    if (bytes->failed || (size_t)(bytes->end - bytes->at) < size_bytes) {
        bytes->failed = true;
        return;
    }
    memcpy(value, bytes->at, size_bytes);
    bytes->at += size_bytes;
}

uint16_t bytes_u16(struct bytes *bytes) {
    uint16_t value;
    take(bytes, &value, sizeof value);
    return value;
}

uint32_t bytes_u32(struct bytes *bytes) {
    uint32_t value;
    take(bytes, &value, sizeof value);
    return value;
}

uint64_t bytes_u64(struct bytes *bytes) {
    uint64_t value;
    take(bytes, &value, sizeof value);
    return value;
}

/* *bits: how many the number has. */
static uint64_t read_leb(struct bytes *bytes, unsigned *bits, bool *negative) {
    uint64_t value = 0;
    uint8_t byte = 0;
    *bits = 0;
    do {
        byte = bytes_u8(bytes);
        if (*bits >= 64) {
            bytes->failed = true;
            return 0;
        }
        value |= (uint64_t)(byte & 0x7f) << *bits;
        *bits += 7;
    } while (byte & 0x80);
    *negative = (byte & 0x40) != 0;
    return value;
}

uint64_t bytes_uleb(struct bytes *bytes) {
    unsigned bits = 0;
    bool negative = false;
    return read_leb(bytes, &bits, &negative);
}

int64_t bytes_sleb(struct bytes *bytes) {
    unsigned bits = 0;
    bool negative = false;
    uint64_t value = read_leb(bytes, &bits, &negative);
    if (negative && bits < 64)
        value |= UINT64_MAX << bits;
    return (int64_t)value;
}

bool bytes_skip(struct bytes *bytes, uint64_t size_bytes) {
    if (bytes->failed || size_bytes > (uint64_t)(bytes->end - bytes->at)) {
        bytes->failed = true;
        return false;
    }
    bytes->at += size_bytes;
    return true;
}

const struct unwind_registers *unwind_registers_of(uint16_t machine) {
    /* System V ABI for x86-64, figure 3.36; DWARF for the Arm 64-bit Architecture, 4.1. */
    static const struct unwind_registers x86_64 = {.stack_pointer = 7, .frame_pointer = 6, .return_address = 16};
    static const struct unwind_registers aarch64 = {
        .stack_pointer = 31, .frame_pointer = 29, .return_address = 30, .has_link_register = true};
    return machine == EM_X86_64 ? &x86_64 : machine == EM_AARCH64 ? &aarch64 : NULL;
}

/* A product or sum of hostile numbers wraps. */
static int64_t scaled(const struct machine *machine, uint64_t value) {
    return (int64_t)(value * (uint64_t)machine->cie->data_alignment);
}

static void set_rule(struct machine *machine, uint64_t number, enum rule_kind kind, int64_t offset) {
    struct rule rule = {.kind = kind, .offset = offset};
    if (number == machine->cie->return_register)
        machine->state.return_address = rule;
    else if (number == machine->registers->frame_pointer)
        machine->state.frame_pointer = rule;
}

static void restore_rule(struct machine *machine, uint64_t number) {
    if (number == machine->cie->return_register)
        machine->state.return_address = machine->initial.return_address;
    else if (number == machine->registers->frame_pointer)
        machine->state.frame_pointer = machine->initial.frame_pointer;
}

static void set_cfa(struct machine *machine, uint64_t number, int64_t offset) {
    machine->state.cfa_known = true;
    machine->state.dereferenced = false;
    machine->state.linkage_stub = false;
    machine->state.cfa_register = number;
    machine->state.cfa_offset = offset;
}

/* Two expressions occur: a word relative to a register, where a function aligned its stack, and that of the procedure
 * linkage table, whose stubs push a word after their first 11 bytes (x86-64):
 * breg7(8) breg16(0) lit15 and lit11 ge lit3 shl plus */
static void set_cfa_expression(struct machine *machine, struct bytes *bytes) {
    static const uint8_t linkage[] = {0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
    uint64_t size = bytes_uleb(bytes);
    struct bytes expression = {.at = bytes->at};
    if (!bytes_skip(bytes, size))
        return;
    expression.end = bytes->at;
    machine->state.cfa_known = false;
    if (size == sizeof linkage && memcmp(expression.at, linkage, sizeof linkage) == 0) {
        set_cfa(machine, machine->registers->stack_pointer, 8);
        machine->state.linkage_stub = true;
        return;
    }
    uint8_t operation = bytes_u8(&expression);
    int64_t offset = bytes_sleb(&expression);
    if (operation < OPERATION_BREG0 || operation > OPERATION_BREG31 || bytes_u8(&expression) != OPERATION_DEREF ||
        expression.failed || expression.at != expression.end)
        return;
    set_cfa(machine, (uint64_t)(operation - OPERATION_BREG0), offset);
    machine->state.dereferenced = true;
}

static void run_state_instruction(struct machine *machine, struct bytes *bytes, uint8_t instruction) {
    switch (instruction) {
    case CFA_REMEMBER_STATE:
        if (machine->depth == REMEMBERED_MAX)
            bytes->failed = true;
        else
            machine->remembered[machine->depth++] = machine->state;
        break;
    case CFA_RESTORE_STATE:
        if (machine->depth == 0)
            bytes->failed = true;
        else
            machine->state = machine->remembered[--machine->depth];
        break;
    default:
        break;
    }
}

static void run_cfa_instruction(struct machine *machine, struct bytes *bytes, uint8_t instruction) {
    uint64_t number = machine->state.cfa_register;
    switch (instruction) {
    case CFA_DEF_CFA:
        number = bytes_uleb(bytes);
        set_cfa(machine, number, (int64_t)bytes_uleb(bytes));
        break;
    case CFA_DEF_CFA_SF:
        number = bytes_uleb(bytes);
        set_cfa(machine, number, scaled(machine, (uint64_t)bytes_sleb(bytes)));
        break;
    case CFA_DEF_CFA_REGISTER:
        set_cfa(machine, bytes_uleb(bytes), machine->state.cfa_offset);
        break;
    case CFA_DEF_CFA_OFFSET:
        set_cfa(machine, number, (int64_t)bytes_uleb(bytes));
        break;
    case CFA_DEF_CFA_OFFSET_SF:
        set_cfa(machine, number, scaled(machine, (uint64_t)bytes_sleb(bytes)));
        break;
    default:
        set_cfa_expression(machine, bytes);
    }
}

static void run_rule_instruction(struct machine *machine, struct bytes *bytes, uint8_t instruction) {
    uint64_t number = bytes_uleb(bytes);
    switch (instruction) {
    case CFA_OFFSET_EXTENDED:
        set_rule(machine, number, RULE_OFFSET, scaled(machine, bytes_uleb(bytes)));
        break;
    case CFA_OFFSET_EXTENDED_SF:
        set_rule(machine, number, RULE_OFFSET, scaled(machine, (uint64_t)bytes_sleb(bytes)));
        break;
    case CFA_RESTORE_EXTENDED:
        restore_rule(machine, number);
        break;
    case CFA_UNDEFINED:
        set_rule(machine, number, RULE_UNDEFINED, 0);
        break;
    case CFA_SAME_VALUE:
        set_rule(machine, number, RULE_SAME, 0);
        break;
    case CFA_EXPRESSION:
    case CFA_VAL_EXPRESSION:
        (void)bytes_skip(bytes, bytes_uleb(bytes));
        set_rule(machine, number, RULE_UNKNOWN, 0);
        break;
    default: /* CFA_REGISTER, CFA_VAL_OFFSET, CFA_VAL_OFFSET_SF */
        (void)bytes_uleb(bytes);
        set_rule(machine, number, RULE_UNKNOWN, 0);
    }
}

static void advance(struct machine *machine, uint64_t units) {
    machine->location += units * machine->cie->code_alignment;
}

static void run_instruction(struct machine *machine, struct bytes *bytes) {
    uint8_t instruction = bytes_u8(bytes), operand = instruction & 0x3f;
    switch (instruction & 0xc0) {
    case CFA_ADVANCE_LOC:
        advance(machine, operand);
        return;
    case CFA_OFFSET:
        set_rule(machine, operand, RULE_OFFSET, scaled(machine, bytes_uleb(bytes)));
        return;
    case CFA_RESTORE:
        restore_rule(machine, operand);
        return;
    default:
        break;
    }
    switch (instruction) {
    case CFA_ADVANCE_LOC1:
        advance(machine, bytes_u8(bytes));
        break;
    case CFA_ADVANCE_LOC2:
        advance(machine, bytes_u16(bytes));
        break;
    case CFA_ADVANCE_LOC4:
        advance(machine, bytes_u32(bytes));
        break;
    case CFA_DEF_CFA:
    case CFA_DEF_CFA_SF:
    case CFA_DEF_CFA_REGISTER:
    case CFA_DEF_CFA_OFFSET:
    case CFA_DEF_CFA_OFFSET_SF:
    case CFA_DEF_CFA_EXPRESSION:
        run_cfa_instruction(machine, bytes, instruction);
        break;
    case CFA_OFFSET_EXTENDED:
    case CFA_OFFSET_EXTENDED_SF:
    case CFA_RESTORE_EXTENDED:
    case CFA_UNDEFINED:
    case CFA_SAME_VALUE:
    case CFA_REGISTER:
    case CFA_EXPRESSION:
    case CFA_VAL_OFFSET:
    case CFA_VAL_OFFSET_SF:
    case CFA_VAL_EXPRESSION:
        run_rule_instruction(machine, bytes, instruction);
        break;
    case CFA_NOP:
    case CFA_NEGATE_RA_STATE:
        break;
    case CFA_REMEMBER_STATE:
    case CFA_RESTORE_STATE:
        run_state_instruction(machine, bytes, instruction);
        break;
    case CFA_GNU_ARGS_SIZE:
        (void)bytes_uleb(bytes);
        break;
    default: /* CFA_SET_LOC, which nobody writes, and what is not known */
        bytes->failed = true;
    }
}

/* Runs up to the row that holds `address`. */
static enum status run_until(struct machine *machine, struct bytes bytes, uint64_t address) {
    for (size_t i = 0; i < INSTRUCTIONS_MAX && bytes.at < bytes.end; i++) {
        struct state before = machine->state;
        run_instruction(machine, &bytes);
        if (bytes.failed)
            return STATUS_NOT_FOUND;
        if (machine->location > address) {
            machine->state = before;
            return STATUS_OK;
        }
    }
    return bytes.at < bytes.end ? STATUS_LIMIT : STATUS_OK;
}

static enum status make_row(const struct machine *machine, uint64_t address, struct unwind_row *row) {
    const struct state *state = &machine->state;
    *row = (struct unwind_row){.dereferenced = state->dereferenced, .offset = state->cfa_offset};
    if (!state->cfa_known || state->return_address.kind == RULE_UNKNOWN || state->frame_pointer.kind == RULE_UNKNOWN)
        return STATUS_NOT_FOUND;
    row->base = state->cfa_register == machine->registers->stack_pointer   ? UNWIND_STACK_POINTER
                : state->cfa_register == machine->registers->frame_pointer ? UNWIND_FRAME_POINTER
                                                                           : UNWIND_OTHER_REGISTER;
    if (state->linkage_stub && (address & 15) >= 11)
        row->offset += 8;
    row->outermost = state->return_address.kind == RULE_UNDEFINED;
    row->return_in_register = state->return_address.kind == RULE_SAME && machine->registers->has_link_register;
    row->return_offset = state->return_address.offset;
    row->frame_pointer_saved = state->frame_pointer.kind == RULE_OFFSET;
    row->frame_pointer_offset = state->frame_pointer.offset;
    if (state->return_address.kind == RULE_SAME && !row->return_in_register)
        return STATUS_NOT_FOUND;
    return STATUS_OK;
}

enum status unwind_program_run(const struct unwind_registers *registers, const struct unwind_cie *cie,
                               struct bytes program, uint64_t start, uint64_t address, struct unwind_row *row) {
    struct machine machine = {.registers = registers, .cie = cie};
    TRY(run_until(&machine, cie->program, UINT64_MAX));
    machine.initial = machine.state;
    machine.location = start;
    TRY(run_until(&machine, program, address));
    return make_row(&machine, address, row);
}
