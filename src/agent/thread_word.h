/* What a function returns that does nothing but load a variable of the thread's, without a call: where the variable is,
 * its one instruction says. Else it has to be called. */
#ifndef STROBE_AGENT_THREAD_WORD_H
#define STROBE_AGENT_THREAD_WORD_H

#include "agent/load.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
/* [endbr64;] mov %fs:offset,%rax; ret */
static inline bool thread_word_of(void *(*function)(void), int64_t *offset) {
    static const uint8_t entry[] = {0xf3, 0x0f, 0x1e, 0xfa}, load[] = {0x64, 0x48, 0x8b, 0x04, 0x25};
    const uint8_t ret = 0xc3, *code = pointer_to((uint64_t)(uintptr_t)function);
    int32_t displacement;
    if (memcmp(code, entry, sizeof entry) == 0)
        code += sizeof entry;
    if (memcmp(code, load, sizeof load) != 0 || code[sizeof load + sizeof displacement] != ret)
        return false;
    memcpy(&displacement, code + sizeof load, sizeof displacement);
    *offset = displacement;
    return true;
}

static inline const void *thread_word(int64_t offset) {
    const void *word;
    __asm__ volatile("movq %%fs:(%1), %0" : "=r"(word) : "r"(offset));
    return word;
}
#else
static inline bool thread_word_of(void *(*function)(void), int64_t *offset) {
    (void)function;
    (void)offset;
    return false;
}

static inline const void *thread_word(int64_t offset) {
    (void)offset;
    return NULL;
}
#endif

#endif
