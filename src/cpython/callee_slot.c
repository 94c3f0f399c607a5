#include "cpython/callee_slot.h"

#include "cpython/stack_effect.h"

#include <stdbool.h>
#include <stdlib.h>

/* Include/opcode.h 3.8 to 3.10 */
enum {
    BEGIN_FINALLY_3_8 = 53,
    YIELD_FROM = 72,
    END_FINALLY_3_8 = 88,
    FOR_ITER = 93,
    UNPACK_EX = 94,
    GEN_START_3_10 = 129,
    CALL_FUNCTION = 131,
    CALL_FUNCTION_KW = 141,
    CALL_FUNCTION_EX = 142,
    EXTENDED_ARG = 144,
    CALL_METHOD = 161,
    CALL_FINALLY_3_8 = 162,
    POP_FINALLY_3_8 = 163,
};

enum {
    UNIT_BYTES = 2,
    MAX_DEPTH = 1 << 14,
    MAX_VAGUE = 32,
    /* So many values more come with an exception (BEGIN_FINALLY and END_FINALLY, Python/ceval.c 3.8). */
    EXCEPTION_SLOTS = 5,
    UNSEEN = -1,
};

/* An instruction with its prefixes. */
struct instruction {
    uint8_t opcode;
    uint32_t argument;
    size_t next; /* the unit behind it */
};

/* What is known of a place. In 3.8 the body of a `finally` is come to with one value more or with six: the depth there
 * is vague. (What stack_effect() says makes it six always.) */
struct place {
    int16_t depth; /* before the instruction, UNSEEN where nothing is known to lead */
    uint8_t vague; /* in so many bodies within each other */
    bool waits;    /* to be gone on from */
};

struct analysis {
    uint32_t minor;
    const uint8_t *bytecode;
    size_t units;
    struct place *places;
    uint32_t *waiting;
    size_t waiting_count;
};

static struct instruction fetch(const struct analysis *analysis, size_t unit) {
    struct instruction instruction = {.opcode = EXTENDED_ARG, .next = unit};
    while (instruction.opcode == EXTENDED_ARG && instruction.next < analysis->units) {
        const uint8_t *bytes = analysis->bytecode + instruction.next++ * UNIT_BYTES;
        instruction.opcode = bytes[0];
        instruction.argument = instruction.argument << 8 | bytes[1];
    }
    return instruction;
}

static int64_t straight_effect(const struct stack_effect *effect, const struct instruction *instruction) {
    uint32_t argument = instruction->argument;
    if (instruction->opcode == UNPACK_EX)
        argument = (argument & UINT8_MAX) + (argument >> 8);
    return effect->base + (int64_t)effect->per_argument * argument - __builtin_popcount(argument & effect->bits);
}

/* Notes that `unit` can be come to like this. */
static void lead_to(struct analysis *analysis, uint64_t unit, int64_t depth, unsigned vague) {
    if (unit >= analysis->units || depth < 0 || depth > MAX_DEPTH)
        return;
    struct place *place = &analysis->places[unit];
    if (place->depth != UNSEEN && place->vague >= vague)
        return;
    if (place->depth == UNSEEN)
        place->depth = (int16_t)depth;
    place->vague = (uint8_t)(vague < MAX_VAGUE ? vague : MAX_VAGUE);
    if (!place->waits)
        analysis->waiting[analysis->waiting_count++] = (uint32_t)unit;
    place->waits = true;
}

/* How vague it is behind an instruction. */
static unsigned vague_behind(const struct analysis *analysis, uint8_t opcode, unsigned vague) {
    if (analysis->minor != 8)
        return 0;
    if (opcode == BEGIN_FINALLY_3_8)
        return vague + 1;
    return (opcode == END_FINALLY_3_8 || opcode == POP_FINALLY_3_8) && vague > 0 ? vague - 1 : vague;
}

static void go_on_from(struct analysis *analysis, size_t unit) {
    const struct place place = analysis->places[unit];
    struct instruction instruction = fetch(analysis, unit);
    const struct stack_effect *effect =
        &stack_effect_tables[analysis->minor - STACK_EFFECT_FIRST_MINOR][instruction.opcode];
    if (!effect->exists)
        return;
    unsigned vague = vague_behind(analysis, instruction.opcode, place.vague);
    if (!effect->ends)
        lead_to(analysis, instruction.next, place.depth + straight_effect(effect, &instruction), vague);
    if (effect->jump == STACK_EFFECT_NO_JUMP)
        return;
    /* Jumps count bytes, and instructions from 3.10 on. */
    uint64_t target = analysis->minor < 10 ? instruction.argument / UNIT_BYTES : instruction.argument;
    if (effect->jump == STACK_EFFECT_RELATIVE_JUMP)
        target += instruction.next;
    if (analysis->minor == 8 && instruction.opcode == CALL_FINALLY_3_8)
        vague++;
    lead_to(analysis, target, place.depth + effect->jump_effect, vague);
}

static struct callee_slot slot_of(const struct analysis *analysis, size_t unit) {
    const struct place *place = &analysis->places[unit];
    struct callee_slot slot = {.kind = CALLEE_SLOT_CALLABLE};
    if (place->depth == UNSEEN)
        return (struct callee_slot){0};
    struct instruction instruction = fetch(analysis, unit);
    int64_t arguments = 0, index = place->depth;
    switch (instruction.opcode) {
    case CALL_FUNCTION:
    case CALL_FUNCTION_KW:
        arguments = instruction.argument;
        index -= arguments + (instruction.opcode == CALL_FUNCTION_KW ? 2 : 1);
        break;
    case CALL_METHOD:
        slot.kind = CALLEE_SLOT_METHOD;
        arguments = (int64_t)instruction.argument + 1;
        index -= arguments + 1;
        break;
    case CALL_FUNCTION_EX:
        index -= 2 + (instruction.argument & 1);
        break;
    case FOR_ITER:
    case YIELD_FROM:
        slot.kind = CALLEE_SLOT_ITERATOR;
        index -= instruction.opcode == YIELD_FROM ? 2 : 1;
        break;
    default:
        return (struct callee_slot){0};
    }
    if (index < 0)
        return (struct callee_slot){0};
    slot.argument_count = (uint8_t)(arguments < UINT8_MAX ? arguments : UINT8_MAX);
    slot.index = (uint16_t)index;
    if (place->vague > 0 && index >= EXCEPTION_SLOTS)
        slot.lower = EXCEPTION_SLOTS;
    return slot;
}

enum status callee_slots_find(uint32_t minor, const uint8_t *bytecode, size_t units, struct callee_slot *slots) {
    struct analysis analysis = {.minor = minor, .bytecode = bytecode, .units = units};
    enum status status = STATUS_FAILED;
    if (minor < STACK_EFFECT_FIRST_MINOR || minor > STACK_EFFECT_LAST_MINOR)
        return STATUS_NOT_FOUND;
    analysis.places = malloc((units + 1) * sizeof analysis.places[0]);
    analysis.waiting = malloc((units + 1) * sizeof analysis.waiting[0]);
    if (analysis.places == NULL || analysis.waiting == NULL)
        goto out;
    for (size_t i = 0; i < units; i++)
        analysis.places[i] = (struct place){.depth = UNSEEN};
    /* What a generator was started with is on its stack from 3.10 on (gen_send_ex, Objects/genobject.c). */
    lead_to(&analysis, 0, minor == 10 && units > 0 && bytecode[0] == GEN_START_3_10 ? 1 : 0, 0);
    while (analysis.waiting_count > 0) {
        size_t unit = analysis.waiting[--analysis.waiting_count];
        analysis.places[unit].waits = false;
        go_on_from(&analysis, unit);
    }
    for (size_t i = 0; i < units; i++)
        slots[i] = slot_of(&analysis, i);
    status = STATUS_OK;
out:
    free(analysis.places);
    free(analysis.waiting);
    return status;
}
