/* The words of a test's own stack, which a sanitizer takes for parts of variables that are none of the reader's. */
#ifndef STROBE_TESTS_UNIT_OWN_STACK_H
#define STROBE_TESTS_UNIT_OWN_STACK_H

#include <stddef.h>
#include <stdint.h>

__attribute__((no_sanitize("address", "undefined"))) static inline void copy_own_stack(uint64_t *to, uint64_t address,
                                                                                       size_t words) {
    const volatile uint64_t *from = (const volatile uint64_t *)(uintptr_t)address;
    for (size_t i = 0; i < words; i++)
        to[i] = from[i];
}

#endif
