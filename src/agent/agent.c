#include "agent/agent.h"

#include "agent/codes.h"
#include "agent/copy.h"
#include "agent/heap.h"
#include "agent/heap_libc.h"
#include "agent/heap_map.h"
#include "agent/heap_python.h"
#include "agent/heap_touched.h"
#include "agent/hot.h"
#include "agent/region.h"
#include "agent/signals.h"
#include "agent/threads.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FOLDER_BYTES = 4000 };
static const uint64_t DEFAULT_PERIOD_NS = 1000000;
static const uint64_t MIN_PERIOD_NS = 10000;
static const uint64_t MAX_PERIOD_NS = UINT64_C(3600000000000);

static struct {
    struct wire_region *region; /* NULL: the agent does nothing */
    pid_t pid;                  /* whose region it is */
    struct agent_python python;
    uint64_t period_ns;
    bool wants_perf;
    uint32_t control; /* as it was when a fork began */
    /* There is no CPython, but one may yet be loaded. */
    _Atomic bool waiting;
    _Atomic(const void *) last_stranger; /* the object that was last found to be no CPython */
    char folder[FOLDER_BYTES];
    char began_in[WIRE_FOLDER_BYTES];
} agent;

bool agent_owns_region(void) {
    return agent.region != NULL && agent.pid == getpid();
}

AGENT_HOT struct wire_region *agent_region(void) {
    return agent.region;
}

AGENT_HOT const struct agent_python *agent_python(void) {
    return &agent.python;
}

uint64_t agent_period_ns(void) {
    return agent.period_ns;
}

AGENT_HOT bool agent_wants_perf(void) {
    return agent.wants_perf;
}

static void switch_off(const char *reason) {
    struct wire_region *region = agent.region;
    agent.region = NULL;
    heap_switch_off();
    snprintf(region->reason, sizeof region->reason, "%s", reason);
    atomic_store(&region->state, WIRE_OFF);
}

void agent_install_signal(void) {
    int error = errno;
    if (signals_install() != STATUS_OK)
        switch_off("the kernel refuses a handler for the profiling signal");
    errno = error;
}

static uint64_t period_from_environment(void) {
    const char *text = getenv(WIRE_ENVIRONMENT_PERIOD);
    uint64_t period_ns = 0;
    for (; text != NULL && *text >= '0' && *text <= '9' && period_ns <= MAX_PERIOD_NS; text++)
        period_ns = period_ns * 10 + (uint64_t)(*text - '0');
    if (period_ns == 0)
        return DEFAULT_PERIOD_NS;
    return period_ns < MIN_PERIOD_NS ? MIN_PERIOD_NS : period_ns > MAX_PERIOD_NS ? MAX_PERIOD_NS : period_ns;
}

static void describe_process(struct wire_region *region, bool forked) {
    region->version = WIRE_VERSION;
    region->pid = agent.pid;
    region->parent_pid = getppid();
    region->python_version = agent.python.version;
    region->free_threaded = agent.python.layout.free_threaded;
    region->forked = forked;
    region->start_ns = clock_now_ns();
    region->period_ns = agent.period_ns;
    region->runtime = agent.python.runtime;
    region->eval_address = agent.python.eval;
    memcpy(region->began_in, agent.began_in, sizeof region->began_in);
    atomic_store(&region->state, WIRE_SAMPLING);
    atomic_store(&region->control, agent.control);
}

/* getcwd may allocate. */
static void note_working_directory(void) {
    if (syscall(SYS_getcwd, agent.began_in, sizeof agent.began_in) < 0 || agent.began_in[0] != '/')
        agent.began_in[0] = '\0';
}

/* Begins to sample this process, whose one thread is the calling one. */
static void begin(bool forked, uintptr_t stack_end) {
    if (region_make(agent.folder, heap_is_exact ? WIRE_LARGE_RING_BYTES : 0, &agent.region) != STATUS_OK) {
        heap_switch_off();
        return;
    }
    agent.pid = getpid();
    describe_process(agent.region, forked);
    codes_publish_deaths(&agent.region->deaths);
    heap_begin(agent.region, forked);
    struct agent_thread *thread = threads_claim();
    if (thread != NULL)
        threads_begin(thread, stack_end);
    heap_tell_early();
    atomic_store(&agent.region->magic, WIRE_MAGIC);
}

static void before_fork(void) {
    if (agent_owns_region())
        agent.control = atomic_load(&agent.region->control);
}

static void in_forked_child(void) {
    int error = errno;
    struct wire_region *parents = agent.region;
    agent.region = NULL;
    codes_publish_deaths(NULL);
    heap_forget();
    heap_map_forget();
    uintptr_t stack_end = threads_forget_all();
    if (parents != NULL) {
        region_forget(parents);
        begin(true, stack_end);
    }
    errno = error;
}

/* The kernel puts the program's name at the very end of the initial stack. */
static uintptr_t end_of_initial_stack(void) {
    return (uintptr_t)getauxval(AT_EXECFN) & ~(uintptr_t)7;
}

static bool read_environment(void) {
    const char *folder = secure_getenv(WIRE_ENVIRONMENT_FOLDER);
    if (folder == NULL || folder[0] != '/' || strlen(folder) >= sizeof agent.folder)
        return false;
    memcpy(agent.folder, folder, strlen(folder) + 1);
    agent.period_ns = period_from_environment();
    const char *clock = getenv(WIRE_ENVIRONMENT_CLOCK);
    agent.wants_perf = clock != NULL && strcmp(clock, "perf") == 0;
    const char *paused = getenv(WIRE_ENVIRONMENT_PAUSED);
    agent.control = paused != NULL && strcmp(paused, "1") == 0 ? WIRE_CONTROL_PAUSE : WIRE_CONTROL_SAMPLE;
    return true;
}

/* What has to be done once for a process and its children; else why it cannot be. */
static const char *prepare_process(void) {
    if (!codes_watch(&agent.python))
        return "it does not say when code objects die";
    if (threads_init() != STATUS_OK)
        return "no key is left for threads to end by";
    if (signals_install() != STATUS_OK)
        return "the kernel refuses a handler for the profiling signal";
    return pthread_atfork(before_fork, NULL, in_forked_child) == 0 ? NULL : "no memory is left";
}

/* Looks for CPython in `library`, and begins if it is there. */
static enum agent_python_presence start(void *library, uintptr_t stack_end) {
    char reason[WIRE_REASON_BYTES] = "";
    enum agent_python_presence presence = agent_python_find(&agent.python, library, reason, sizeof reason);
    if (presence == AGENT_PYTHON_NONE)
        return presence;
    const char *obstacle = presence == AGENT_PYTHON_FOUND ? prepare_process() : reason;
    if (obstacle != NULL)
        region_leave_reason(agent.folder, obstacle);
    else {
        if (library != RTLD_DEFAULT)
            heap_take_over(heap_libc_bytes_in_use());
        begin(false, stack_end);
    }
    if (agent.region == NULL)
        heap_switch_off();
    else if (heap_on) {
        heap_map_begin(heap_libc_allocator());
        heap_python_install();
    }
    return presence;
}

/* What was not found is not for the program to hear of. */
static void forget_errors(void) {
    while (dlerror() != NULL)
        continue;
}

__attribute__((constructor)) static void start_agent(void) {
    int error = errno;
    copy_find_next();
    if (read_environment()) {
        note_working_directory();
        heap_read_environment();
        copy_read_environment();
        if (start(RTLD_DEFAULT, end_of_initial_stack()) == AGENT_PYTHON_NONE)
            atomic_store(&agent.waiting, true);
    }
    forget_errors();
    if (agent.region == NULL)
        heap_switch_off();
    errno = error;
}

/* The first thread's stack ends where all others' do not. */
static uintptr_t end_of_stack(void) {
    return syscall(SYS_gettid) == getpid() ? end_of_initial_stack() : 0;
}

/* The object that a function is in may be known by its handle alone (RTLD_LOCAL). The handle stays open: what is asked
 * of CPython in signal handlers is not to go. */
static void look_at_object(const Dl_info *object) {
    void *handle = dlopen(object->dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    bool is_mine = handle != NULL && dlsym(handle, "_PyRuntime") != NULL && atomic_exchange(&agent.waiting, false);
    if (is_mine)
        (void)start(handle, end_of_stack());
    else if (handle != NULL)
        dlclose(handle);
    forget_errors();
}

void agent_note_caller(const void *caller) {
    if (!atomic_load_explicit(&agent.waiting, memory_order_relaxed))
        return;
    int error = errno;
    Dl_info object;
    if (dladdr(caller, &object) != 0 && atomic_exchange(&agent.last_stranger, object.dli_fbase) != object.dli_fbase)
        look_at_object(&object);
    errno = error;
}

void agent_end(void) {
    if (!agent_owns_region() || atomic_load(&agent.region->state) == WIRE_ENDED)
        return;
    heap_touched_look(true);
    struct agent_thread *thread = threads_current();
    if (thread != NULL)
        threads_end(thread);
    else
        heap_tell_counts(true);
    atomic_store(&agent.region->state, WIRE_ENDED);
}

__attribute__((destructor)) static void end_agent(void) {
    agent_end();
}

static void set_control(uint32_t control) {
    if (!agent_owns_region())
        return;
    struct agent_thread *thread = threads_current();
    /* This thread's account is exact; others make up theirs when their clock calls. */
    signals_block();
    bool changed = atomic_exchange(&agent.region->control, control) != control;
    if (changed && thread != NULL) {
        struct clock_times times = clock_read();
        threads_note_time(thread, &times, control == WIRE_CONTROL_SAMPLE);
    }
    signals_unblock();
}

AGENT_EXPORT void strobe_agent_start(void);
AGENT_EXPORT void strobe_agent_stop(void);
AGENT_EXPORT int strobe_agent_is_sampling(void);

void strobe_agent_start(void) {
    set_control(WIRE_CONTROL_SAMPLE);
}

void strobe_agent_stop(void) {
    set_control(WIRE_CONTROL_PAUSE);
}

int strobe_agent_is_sampling(void) {
    return agent_owns_region() && atomic_load(&agent.region->control) == WIRE_CONTROL_SAMPLE;
}
