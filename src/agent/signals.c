#include "agent/signals.h"

#include "agent/agent.h"
#include "agent/handler.h"
#include "agent/hot.h"
#include "agent/threads.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

typedef void signal_function(int, siginfo_t *, void *);

/* As the kernel has it (include/linux/signal_types.h): libc's sigaction refuses this signal. */
struct kernel_action {
    signal_function *function;
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

#if defined(__x86_64__)
enum { KERNEL_SA_RESTORER = 0x04000000 }; /* arch/x86/include/uapi/asm/signal.h */
/* How a handler returns. Unwinders that find no table for it, as here, know it by exactly these bytes; the nop is in
 * front as they look for the table of the byte before a return address. */
void agent_return_from_signal(void);
__asm__(".text\n"
        "nop\n"
        ".align 16\n"
        ".hidden agent_return_from_signal\n"
        ".type agent_return_from_signal, @function\n"
        "agent_return_from_signal:\n"
        "movq $15, %rax\n"
        "syscall\n"
        ".size agent_return_from_signal, . - agent_return_from_signal\n");
#endif

/* What stood there before: libc's, SIG_DFL or SIG_IGN. */
static _Atomic(signal_function *) other_function;

static long exchange_action(const struct kernel_action *new_action, struct kernel_action *old_action) {
    return syscall(SYS_rt_sigaction, AGENT_SIGNAL, new_action, old_action, sizeof new_action->mask);
}

/* The signal has its default effect, which ends the process, as soon as the handler returns. */
static void end_by_default(void) {
    struct kernel_action action = {0};
    exchange_action(&action, NULL);
    syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), AGENT_SIGNAL);
}

static const uint64_t MASK = UINT64_C(1) << (AGENT_SIGNAL - 1);

/* With the signals held back that would be without the agent. */
static void call(signal_function *function, int number, siginfo_t *info, void *context) {
    const ucontext_t *interrupted = context;
    uint64_t mask = 0;
    memcpy(&mask, &interrupted->uc_sigmask, sizeof mask);
    mask |= MASK;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
    function(number, info, context);
}

static void pass_on(int number, siginfo_t *info, void *context) {
    signal_function *function = atomic_load(&other_function);
    if (function == (signal_function *)(void *)SIG_DFL)
        end_by_default();
    else if (function != (signal_function *)(void *)SIG_IGN)
        call(function, number, info, context);
}

/* What a timer or an event of ours sends, to whom it may reach too late, is nobody else's. */
static AGENT_HOT bool is_ours(const siginfo_t *info) {
    return info->si_code == SI_TIMER ? threads_know(info->si_value.sival_ptr)
                                     : agent_wants_perf() && perf_has_sent(info->si_code);
}

static AGENT_HOT void on_signal(int number, siginfo_t *info, void *context) {
    int error = errno;
    struct agent_thread *thread = threads_current();
    if (thread != NULL && info->si_code == SI_TIMER && thread == info->si_value.sival_ptr)
        handler_take_tick(thread, (uint32_t)info->si_overrun, context);
    else if (!is_ours(info))
        pass_on(number, info, context);
    else if (thread != NULL && info->si_code != SI_TIMER)
        handler_take_strike(thread, context);
    errno = error;
}

static uint64_t bit_of(int number) {
    return UINT64_C(1) << (number - 1);
}

/* The program's own handlers wait for the agent's, which is short: one of them may jump out and never come back to it,
 * with a lock held. What the agent itself would do wrong is not to be held back. */
static uint64_t held_back(void) {
    return ~(bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGFPE) | bit_of(SIGILL) | bit_of(SIGTRAP) | bit_of(SIGSYS) |
             bit_of(SIGABRT));
}

enum status signals_install(void) {
    struct kernel_action action = {
        .function = on_signal, .flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK, .mask = held_back()};
#if defined(__x86_64__)
    action.flags |= KERNEL_SA_RESTORER;
    action.restorer = agent_return_from_signal;
#endif
    struct kernel_action old_action = {0};
    if (exchange_action(NULL, &old_action) != 0)
        return STATUS_FAILED;
    if (old_action.function != on_signal)
        atomic_store(&other_function, old_action.function);
    return exchange_action(&action, NULL) == 0 ? STATUS_OK : STATUS_FAILED;
}

static void change_mask(int how) {
    uint64_t mask = MASK;
    syscall(SYS_rt_sigprocmask, how, &mask, NULL, sizeof mask);
}

void signals_block(void) {
    change_mask(SIG_BLOCK);
}

void signals_unblock(void) {
    change_mask(SIG_UNBLOCK);
}

bool signals_are_blocked(void) {
    uint64_t mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof mask);
    return (mask & MASK) != 0;
}
