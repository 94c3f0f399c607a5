/* What differs between processors. */
#ifndef STROBE_AGENT_MACHINE_H
#define STROBE_AGENT_MACHINE_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

struct machine_registers {
    uint64_t program_counter;
    uint64_t stack_pointer;
    uint64_t frame_register;
    uint64_t return_register; /* 0 where return addresses are on the stack only */
    const uint64_t *general;  /* in the context */
    size_t general_count;
};

#if defined(__x86_64__)
static inline struct machine_registers machine_read_registers(const ucontext_t *context) {
    return (struct machine_registers){
        .program_counter = (uint64_t)context->uc_mcontext.gregs[REG_RIP],
        .stack_pointer = (uint64_t)context->uc_mcontext.gregs[REG_RSP],
        .frame_register = (uint64_t)context->uc_mcontext.gregs[REG_RBP],
        .general = (const uint64_t *)context->uc_mcontext.gregs,
        .general_count = REG_RIP, /* it and what is no address stand behind them */
    };
}
#elif defined(__aarch64__)
static inline struct machine_registers machine_read_registers(const ucontext_t *context) {
    return (struct machine_registers){
        .program_counter = context->uc_mcontext.pc,
        .stack_pointer = context->uc_mcontext.sp,
        .frame_register = context->uc_mcontext.regs[29],
        .return_register = context->uc_mcontext.regs[30],
        .general = (const uint64_t *)context->uc_mcontext.regs,
        .general_count = sizeof context->uc_mcontext.regs / sizeof context->uc_mcontext.regs[0],
    };
}
#else
#error "the agent does not know this processor"
#endif

#endif
