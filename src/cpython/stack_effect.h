/* How instructions of 3.8 to 3.10 change the depth of the value stack: as dis.stack_effect() says. Generated tables
 * (tools/generate-stack-effects). */
#ifndef STROBE_CPYTHON_STACK_EFFECT_H
#define STROBE_CPYTHON_STACK_EFFECT_H

#include <stdbool.h>
#include <stdint.h>

enum { STACK_EFFECT_FIRST_MINOR = 8, STACK_EFFECT_LAST_MINOR = 10 };

enum stack_effect_jump {
    STACK_EFFECT_NO_JUMP = 0,
    STACK_EFFECT_RELATIVE_JUMP, /* from behind the instruction */
    STACK_EFFECT_ABSOLUTE_JUMP,
};

/* Without a jump the depth changes by base + per_argument * argument, less one for each bit that the argument has of
 * `bits`. UNPACK_EX has two arguments in one, a byte each, which count both. */
struct stack_effect {
    int8_t base;
    int8_t per_argument;
    uint8_t bits;
    int8_t jump_effect; /* with the jump */
    uint8_t jump;       /* enum stack_effect_jump */
    bool ends;          /* what is behind it does not follow */
    bool exists;
};

extern const struct stack_effect stack_effect_tables[STACK_EFFECT_LAST_MINOR - STACK_EFFECT_FIRST_MINOR + 1][256];

#endif
