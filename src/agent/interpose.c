/* The functions of libc's that the program finds here instead: those that start threads, the one that takes the
 * agent's signal away, those that end the process. libc's own threads (those of timer_create, getaddrinfo_a, aio) do
 * not come through here and are not sampled. */
#include "agent/agent.h"
#include "agent/handler.h"
#include "agent/heap.h"
#include "agent/threads.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51 /* Linux 5.14 */
#endif

static struct {
    int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*pthread_cancel)(pthread_t);
    int (*thrd_create)(thrd_t *, thrd_start_t, void *);
    int (*execve)(const char *, char *const[], char *const[]);
    int (*execv)(const char *, char *const[]);
    int (*fexecve)(int, char *const[], char *const[]);
} libc;

/* Also before the agent's constructor: a library that is initialised earlier may create threads. */
static void find_function(void *pointer, const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    memcpy(pointer, &function, sizeof function);
}

/* Where the frame of a signal and the handler of the agent's do not fit into what a thread was given to the last page.
 * `enlarged` is a copy that must not be destroyed: it shares what the original owns. */
static const pthread_attr_t *enlarge_small_stack(const pthread_attr_t *attributes, pthread_attr_t *enlarged) {
    enum { SMALL_BYTES = 64 << 10, HANDLER_BYTES = 4096, PAGE_BYTES = 4096 };
    size_t size_bytes = 0, same_bytes = 0;
    void *address = NULL;
    if (attributes == NULL || pthread_attr_getstacksize(attributes, &size_bytes) != 0 || size_bytes >= SMALL_BYTES)
        return attributes;
    /* A stack of the program's own: musl says that there is none, glibc that it ends at 0. */
    if (pthread_attr_getstack(attributes, &address, &same_bytes) == 0 && (uintptr_t)address + same_bytes != 0)
        return attributes;
    size_t frame_bytes = getauxval(AT_MINSIGSTKSZ);
    size_t more_bytes = ((frame_bytes > 0 ? frame_bytes : PAGE_BYTES) + HANDLER_BYTES + PAGE_BYTES - 1) / PAGE_BYTES;
    *enlarged = *attributes;
    return pthread_attr_setstacksize(enlarged, size_bytes + more_bytes * PAGE_BYTES) == 0 ? enlarged : attributes;
}

static void *run_posix(void *argument) {
    struct agent_thread *thread = argument;
    void *(*start)(void *) = thread->start.posix;
    void *start_argument = thread->argument;
    threads_begin(thread, (uintptr_t)__builtin_frame_address(0));
    return start(start_argument);
}

AGENT_EXPORT int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*start)(void *),
                                void *argument) {
    if (libc.pthread_create == NULL)
        find_function(&libc.pthread_create, "pthread_create");
    struct agent_thread *thread = agent_owns_region() ? threads_claim() : NULL;
    if (thread == NULL)
        return libc.pthread_create(id, attributes, start, argument);
    thread->start.posix = start;
    thread->argument = argument;
    heap_tell_start(thread->ring.slot);
    pthread_attr_t enlarged;
    int result = libc.pthread_create(id, enlarge_small_stack(attributes, &enlarged), run_posix, thread);
    if (result != 0)
        threads_unclaim(thread);
    return result;
}

static int run_c11(void *argument) {
    struct agent_thread *thread = argument;
    int (*start)(void *) = thread->start.c11;
    void *start_argument = thread->argument;
    threads_begin(thread, (uintptr_t)__builtin_frame_address(0));
    return start(start_argument);
}

AGENT_EXPORT int thrd_create(thrd_t *id, thrd_start_t start, void *argument) {
    if (libc.thrd_create == NULL)
        find_function(&libc.thrd_create, "thrd_create");
    struct agent_thread *thread = agent_owns_region() ? threads_claim() : NULL;
    if (thread == NULL)
        return libc.thrd_create(id, start, argument);
    thread->start.c11 = start;
    thread->argument = argument;
    heap_tell_start(thread->ring.slot);
    int result = libc.thrd_create(id, run_c11, thread);
    if (result != thrd_success)
        threads_unclaim(thread);
    return result;
}

/* The first one sets libc's handler over the agent's. */
AGENT_EXPORT int pthread_cancel(pthread_t id) {
    if (libc.pthread_cancel == NULL)
        find_function(&libc.pthread_cancel, "pthread_cancel");
    int result = libc.pthread_cancel(id);
    if (agent_owns_region())
        agent_install_signal();
    return result;
}

/* Runs no destructors: os._exit, and how forked workers end. */
static _Noreturn void leave(int status) {
    struct agent_thread *thread = agent_owns_region() ? threads_current() : NULL;
    if (thread != NULL)
        handler_take_last(thread, false);
    agent_end();
    for (;;)
        syscall(SYS_exit_group, status);
}

AGENT_EXPORT void _exit(int status) {
    leave(status);
}

AGENT_EXPORT void _Exit(int status) {
    leave(status);
}

/* What follows may be the end of the program that runs here: what it has not told yet it tells now. It goes on when
 * there is nothing to execute. A child that was only forked for this has nothing to tell, and one of vfork's neither.
 */
static void tell_before_exec(void) {
    struct agent_thread *thread = agent_owns_region() ? threads_current() : NULL;
    int error = errno;
    if (thread != NULL && (thread->sampled || agent_region()->forked == 0)) {
        handler_take_last(thread, true);
        heap_tell_counts(true);
    }
    errno = error;
}

AGENT_EXPORT int execve(const char *path, char *const arguments[], char *const environment[]) {
    if (libc.execve == NULL)
        find_function(&libc.execve, "execve");
    tell_before_exec();
    return libc.execve(path, arguments, environment);
}

AGENT_EXPORT int execv(const char *path, char *const arguments[]) {
    if (libc.execv == NULL)
        find_function(&libc.execv, "execv");
    tell_before_exec();
    return libc.execv(path, arguments);
}

AGENT_EXPORT int fexecve(int file, char *const arguments[], char *const environment[]) {
    if (libc.fexecve == NULL)
        find_function(&libc.fexecve, "fexecve");
    tell_before_exec();
    return libc.fexecve(file, arguments, environment);
}
