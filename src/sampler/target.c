#include "sampler/target.h"

#include "base/clock.h"
#include "base/memory_meter.h"
#include "base/memory_pages.h"
#include "cpython/library.h"
#include "sampler/attach_runtime.h"
#include "sampler/native_ids.h"
#include "sampler/target_thread.h"
#include "sampler/thread_group.h"

#include <stdlib.h>
#include <string.h>

/* Interpreters and what they say of the GIL and the collector: often, but not at every look of a fast rate. */
static const uint64_t INTERP_PERIOD_NS = NS_PER_MS;
/* How long to look for the standard library: a program may do without. */
static const uint64_t LIBRARY_SEARCH_NS = 2 * NS_PER_S;
enum { MAX_LIBRARY_BYTES = 1 << 14 };
/* Threads that come and go are noticed by counts and list heads; this is for what those do not show (names). */
static const uint64_t LIST_PERIOD_NS = NS_PER_S;
static const uint64_t SETTLE_FIRST_NS = NS_PER_MS;
/* The same of a process just started: a forked one lists its parent's threads until it has tidied up. */
static const uint64_t YOUNG_LIST_PERIOD_NS = 5 * NS_PER_MS;
static const uint64_t YOUNG_NS = 50 * NS_PER_MS;
/* Between two tries to find Python again after an exec. */
static const uint64_t REOPEN_PERIOD_NS = 50 * NS_PER_MS;
/* How long another code object may pass for one that died and whose address it has taken. */
static const uint64_t EPOCH_PERIOD_NS = 100 * NS_PER_MS;
/* The same where code was seen to die not long ago. */
static const uint64_t CHURN_PERIOD_NS = 2 * NS_PER_MS;
/* Code of which more than this was decoded is forgotten, to be decoded anew where it still runs. */
static const size_t MAX_CODE_BYTES = 16 << 20;
/* Code that is known to be dead is kept, too, until then: what was sampled may refer to it. */
static const uint32_t MAX_DEAD_CODE = 2000;
/* Of a process; what is remembered of each is some 10 KiB. */
enum { MAX_SAMPLED_THREADS = 1 << 14 };
/* What one look may cost: the first at a thousand threads of ten thousand frames each takes half of it on the versions
 * that need most. What it does not suffice for is counted as an error. */
static const struct budget look_budget = {.reads_left = UINT64_C(1) << 24, .bytes_left = UINT64_C(1) << 33};

struct target {
    struct process *process;
    struct sampled_process sampled;
    struct target_options options;
    struct sample_sink *sink;
    struct memory_pages pages;
    struct budget budget; /* of this look */
    struct memory_meter live;
    struct memory_meter objects;
    struct runtime runtime;
    struct code_cache codes;
    struct seen_calls calls; /* of all threads */
    struct sample_counters counters;
    struct interp *interps;
    size_t interp_count;
    size_t interp_capacity;
    struct target_thread **threads;
    size_t thread_count;
    size_t thread_capacity;
    struct thread_group group;  /* empty but during a look */
    size_t system_thread_count; /* at the list's last reading */
    struct arena names;         /* of the list's last reading */
    uint64_t interps_read_ns;
    uint64_t listed_ns;
    uint64_t list_period_ns; /* until it is read again though nothing tells of a change */
    uint64_t settle_ns;      /* the same while there are threads of which not all is known */
    uint64_t reopened_ns;
    unsigned exec_count; /* when the runtime was opened */
    uint64_t opened_ns;
    char *library; /* sampled.library */
    uint64_t epoch_ns;
    uint64_t lost_ns;        /* since when it is `lost` */
    uint64_t strange_cpu_ns; /* of its first thread's CPU time, what may be another program's at most */
    bool started;
    bool lost;       /* no Python was found when last looked for: it has exec'd something else */
    uint64_t unborn; /* as it was at the last listing */
    bool listed_once;
    bool list_stale; /* threads came or went */
    bool restarted;  /* the interpreter was finalised and initialised again */
};

static void forget_library(struct target *target) {
    free(target->library);
    target->sampled.library = target->library = NULL;
}

/* The program may be about to import it. */
static enum status find_library(struct target *target, uint64_t now_ns) {
    struct buffer folder;
    if (target->library != NULL || target->interp_count == 0 || now_ns - target->opened_ns > LIBRARY_SEARCH_NS)
        return STATUS_OK;
    buffer_init(&folder, MAX_LIBRARY_BYTES);
    const struct interp *first = &target->interps[target->interp_count - 1];
    if (library_read_folder(&target->runtime, first, &folder) == STATUS_OK)
        target->sampled.library = target->library = strdup(buffer_text(&folder));
    buffer_release(&folder);
    bool is_news = target->library != NULL && target->sink->process_described != NULL;
    return is_news ? target->sink->process_described(target->sink, &target->sampled) : STATUS_OK;
}

static enum status open_runtime(struct target *target, struct error *error) {
    memory_pages_clear(&target->pages);
    target->budget = look_budget;
    target->exec_count = process_exec_count(target->process);
    TRY(attach_runtime(target->process, &target->objects.memory, &target->runtime, error));
    target->runtime.live = &target->live.memory;
    if (target->runtime.empty)
        return error_set(error, STATUS_TORN, "process %d has no interpreter (yet)", (int)target->sampled.pid);
    target->sampled.version = target->runtime.version;
    target->sampled.free_threaded = target->runtime.layout.free_threaded;
    target->opened_ns = clock_monotonic_ns();
    forget_library(target);
    process_forget_command(target->process);
    target->sampled.command = process_command(target->process);
    target->list_stale = true;
    return STATUS_OK;
}

/* Who asks for the holder of the GIL is told when there is none. */
static enum status check_mode(struct target *target, struct error *error) {
    remote_addr address = 0;
    struct interp interp;
    if (target->options.mode != SAMPLING_GIL || interp_first(&target->runtime, &address) != STATUS_OK ||
        interp_read(&target->runtime, address, &interp) != STATUS_OK || interp.gil_enabled)
        return STATUS_OK;
    return error_set(error, STATUS_USAGE, "process %d runs without the GIL: --mode gil has nothing to sample there",
                     (int)target->sampled.pid);
}

enum status target_open(struct process *process, pid_t parent_pid, const struct target_options *options,
                        struct sample_sink *sink, struct target **result, struct error *error) {
    struct target *target = calloc(1, sizeof *target);
    if (target == NULL)
        return error_set(error, STATUS_FAILED, "there is not enough memory");
    target->process = process;
    target->options = *options;
    target->sink = sink;
    target->settle_ns = SETTLE_FIRST_NS;
    target->strange_cpu_ns = UINT64_MAX;
    target->sampled =
        (struct sampled_process){.process = process, .pid = process_pid(process), .parent_pid = parent_pid};
    memory_pages_init(&target->pages, process_memory(process));
    memory_meter_init(&target->live, process_memory(process), &target->budget);
    memory_meter_init(&target->objects, &target->pages.memory, &target->budget);
    enum status status = open_runtime(target, error);
    if (status == STATUS_OK)
        status = check_mode(target, error);
    if (status != STATUS_OK) {
        memory_pages_release(&target->pages);
        free(target);
        return status;
    }
    /* Not before: what it took to find Python is no time that was sampled. */
    target->sampled.start_ns = clock_monotonic_ns();
    target->sampled.start_unix_ns = clock_unix_ns();
    code_cache_init(&target->codes, &target->runtime);
    *result = target;
    return STATUS_OK;
}

enum status target_start(struct target *target, uint32_t number, struct error *error) {
    if (target->options.blocking)
        TRY(process_hold(target->process, error));
    target->sampled.number = number;
    target->started = true;
    return target->sink->process_started(target->sink, &target->sampled);
}

void target_note_birth(struct target *target, uint64_t before_ns) {
    target->strange_cpu_ns = before_ns;
}

void target_note_end(struct target *target, int wait_status) {
    target->sampled.wait_status = wait_status;
    target->sampled.has_status = true;
}

void target_serve(struct target *target) {
    if (target->options.blocking)
        process_serve(target->process);
}

uint64_t target_lost_ns(const struct target *target, uint64_t now_ns) {
    return target->lost && now_ns > target->lost_ns ? now_ns - target->lost_ns : 0;
}

uint32_t target_version(const struct target *target) {
    return target->sampled.version;
}

struct process *target_process(struct target *target) {
    return target->process;
}

struct sample_counters *target_counters(struct target *target) {
    return &target->counters;
}

static enum status end_thread(struct target *target, size_t index) {
    struct target_thread *thread = target->threads[index];
    target->threads[index] = target->threads[--target->thread_count];
    enum status status = target_thread_end_sleep(thread, target->sink, &target->counters);
    enum status ended = target_thread_end_work(thread, target->sink, &target->counters);
    status = status == STATUS_OK ? ended : status;
    ended = target->sink->thread_ended(target->sink, &thread->sampled);
    status = status == STATUS_OK ? ended : status;
    target_thread_release(thread);
    free((char *)(uintptr_t)thread->sampled.name);
    free(thread);
    return status;
}

static enum status end_all_threads(struct target *target) {
    enum status status = STATUS_OK;
    while (target->thread_count > 0) {
        enum status ended = end_thread(target, target->thread_count - 1);
        status = status == STATUS_OK ? ended : status;
    }
    return status;
}

enum status target_note_gone(struct target *target, uint64_t now_ns) {
    target->sampled.end_ns = now_ns;
    return end_all_threads(target);
}

bool target_has_end(const struct target *target) {
    return target->sampled.has_status;
}

enum status target_close(struct target *target) {
    enum status status = end_all_threads(target);
    enum status ended = STATUS_OK;
    if (target->started)
        ended = target->sink->process_ended(target->sink, &target->sampled, &target->counters);
    seen_calls_release(&target->calls);
    code_cache_release(&target->codes);
    memory_pages_release(&target->pages);
    arena_release(&target->names);
    process_free(target->process);
    free(target->library);
    free(target->interps);
    free(target->threads);
    thread_group_release(&target->group);
    free(target);
    return status == STATUS_OK ? ended : status;
}

static enum status add_interp(struct target *target, const struct interp *interp) {
    if (target->interp_count == target->interp_capacity) {
        size_t capacity = target->interp_capacity > 0 ? target->interp_capacity * 2 : 4;
        struct interp *interps = realloc(target->interps, capacity * sizeof interps[0]);
        if (interps == NULL)
            return STATUS_FAILED;
        target->interps = interps;
        target->interp_capacity = capacity;
    }
    target->interps[target->interp_count++] = *interp;
    return STATUS_OK;
}

/* Reads the interpreters again; notices those that are new, and new threads by the heads of the lists. */
static enum status read_interps(struct target *target) {
    size_t old_count = target->interp_count, count = 0;
    remote_addr address = 0, left_behind = 0;
    /* The main interpreter is the oldest, the last in the list (Python/pystate.c). */
    remote_addr old_main = old_count > 0 ? target->interps[old_count - 1].address : 0;
    TRY(interp_first(&target->runtime, &address));
    while (address != 0 && count < MAX_INTERPRETERS) {
        struct interp interp;
        if (address == left_behind)
            return STATUS_TORN; /* a ring */
        if ((count & (count - 1)) == 0)
            left_behind = address;
        TRY(interp_read(&target->runtime, address, &interp));
        bool same = count < old_count && target->interps[count].address == address &&
                    target->interps[count].threads_head == interp.threads_head;
        /* It may have the address that it had before, and so may its thread and its code; the modules go and come. */
        target->restarted |=
            same && target->interps[count].modules != 0 && target->interps[count].modules != interp.modules;
        if (count < target->interp_count)
            target->interps[count] = interp;
        else
            TRY(add_interp(target, &interp));
        target->list_stale |= !same;
        address = interp.next;
        count++;
    }
    target->restarted |= old_main != 0 && count > 0 && target->interps[count - 1].address != old_main;
    target->list_stale |= count != old_count;
    target->interp_count = count;
    return STATUS_OK;
}

static bool has_ended(const struct target_thread *thread) {
    struct thread_activity activity;
    return thread->watch != NULL && thread_watch_activity(thread->watch, &activity) == STATUS_NO_PROCESS;
}

/* A new thread often has the address and the stack, which is the id, of one that has just ended. */
static struct target_thread *find_thread(const struct target *target, const struct thread_state *state) {
    for (size_t i = 0; i < target->thread_count; i++) {
        struct target_thread *thread = target->threads[i];
        if (thread->state.address == state->address && thread->interp == state->interp &&
            thread->state.thread_id == state->thread_id && thread->state.native_thread_id == state->native_thread_id &&
            (state->native_thread_id != 0 || !has_ended(thread)))
            return thread;
    }
    return NULL;
}

static struct target_thread *add_thread(struct target *target) {
    if (target->thread_count == target->thread_capacity) {
        size_t capacity = target->thread_capacity > 0 ? target->thread_capacity * 2 : 8;
        struct target_thread **threads = realloc(target->threads, capacity * sizeof(struct target_thread *));
        if (threads == NULL)
            return NULL;
        target->threads = threads;
        target->thread_capacity = capacity;
    }
    struct target_thread *thread = calloc(1, sizeof *thread);
    if (thread != NULL)
        target->threads[target->thread_count++] = thread;
    return thread;
}

/* What one reading of the list has at hand to tell who the threads are. */
struct listing {
    struct target *target;
    const struct interp *interp;
    struct thread_names names;
    struct system_threads system;
    struct native_ids native_ids;
    bool read_again; /* the system's threads were */
    uint64_t unborn; /* the addresses of thread states that have run nothing yet, put together; 0: there are none */
    uint64_t now_ns;
};

/* Up to 3.11 a state is its creator's by its ids until the thread itself runs (Modules/_threadmodule.c), later it has
 * none. Without a frame there is nothing to see of it, either. */
static bool is_unborn(const struct target *target, const struct thread_state *state) {
    bool has_native_id = layout_has(target->runtime.layout.thread.native_thread_id);
    return state->thread_id == 0 || state->frame == 0 || (has_native_id && state->native_thread_id == 0);
}

static enum status read_system_threads(struct listing *listing) {
    struct target *target = listing->target;
    struct error ignored = {0};
    native_ids_release(&listing->native_ids);
    system_threads_release(&listing->system);
    TRY(process_read_threads(target->process, false, &listing->system, &ignored));
    target->system_thread_count = listing->system.count;
    return native_ids_init(&listing->native_ids, target->process, &listing->system);
}

/* The thread may have been born after the system's threads were read. */
static enum status find_system_thread(struct listing *listing, const struct thread_state *state,
                                      const struct thread_name *name, const struct system_thread **system) {
    *system = native_ids_claim(&listing->native_ids, state, name);
    if (*system != NULL || listing->read_again)
        return STATUS_OK;
    listing->read_again = true;
    TRY(read_system_threads(listing));
    *system = native_ids_claim(&listing->native_ids, state, name);
    return STATUS_OK;
}

/* What a thread had used when looks at it began. The first one of a process whose birth was seen began there: looks are
 * late where strobe gets no processor. */
static uint64_t cpu_before(const struct target *target, const struct target_thread *thread) {
    bool is_first = !target->listed_once && thread->sampled.native_id == (uint64_t)process_own_pid(target->process);
    bool counts = is_first && target->options.mode == SAMPLING_WAIT;
    uint64_t cpu_ns = thread->activity.cpu_ns;
    return counts && target->strange_cpu_ns < cpu_ns ? target->strange_cpu_ns : cpu_ns;
}

static enum status start_thread(struct listing *listing, const struct thread_state *state) {
    struct target *target = listing->target;
    const struct thread_name *name = thread_names_find(&listing->names, state->thread_id);
    const struct system_thread *system = NULL;
    TRY(find_system_thread(listing, state, name, &system));
    target->settle_ns = SETTLE_FIRST_NS;
    struct target_thread *thread = add_thread(target);
    if (thread == NULL)
        return STATUS_FAILED;
    thread->state = *state;
    stack_tracker_init(&thread->tracker, &target->runtime, &target->codes);
    thread->tracker.calls = &target->calls;
    linked_tracker_init(&thread->linked, &target->runtime, &target->codes);
    thread->interp = listing->interp->address;
    thread->listed = true;
    /* The threads that were there at the start have been waiting for their first sample since. */
    thread->sampled_ns = target->listed_once ? listing->now_ns : target->sampled.start_ns;
    thread->sampled = (struct sampled_thread){.process = &target->sampled,
                                              .native_id = system != NULL ? (uint64_t)system->own_tid : 0,
                                              .thread_id = state->thread_id,
                                              .interpreter = listing->interp->id};
    if (system != NULL && thread_watch_open(target->process, system->tid, &thread->watch) != STATUS_OK)
        thread->watch = NULL;
    if (thread->watch != NULL && thread_watch_activity(thread->watch, &thread->activity) == STATUS_OK)
        thread->cpu_start_ns = cpu_before(target, thread);
    thread->wait.from = thread->activity;
    thread->wait.from_ns = clock_monotonic_ns();
    thread->wait.charged_delay_ns = thread->activity.delay_ns;
    thread->run = system != NULL ? system->state : THREAD_RUNNING;
    if (name != NULL)
        thread->sampled.name = strdup(name->name);
    else if (thread->sampled.native_id == (uint64_t)process_own_pid(target->process))
        thread->sampled.name = strdup("MainThread");
    return target->sink->thread_started(target->sink, &thread->sampled);
}

static enum status rename_thread(struct listing *listing, struct target_thread *thread) {
    const struct thread_name *name = thread_names_find(&listing->names, thread->state.thread_id);
    thread->listed = true;
    if (name == NULL || (thread->sampled.name != NULL && strcmp(name->name, thread->sampled.name) == 0))
        return STATUS_OK;
    /* Python's thread ids are used again at once: the name may be that of a successor. */
    if (thread->sampled.name != NULL && name->native_id != 0 && name->native_id != thread->sampled.native_id)
        return STATUS_OK;
    free((char *)(uintptr_t)thread->sampled.name);
    thread->sampled.name = strdup(name->name);
    return listing->target->sink->thread_renamed(listing->target->sink, &thread->sampled);
}

static enum status list_interp(struct listing *listing) {
    struct target *target = listing->target;
    TRY(thread_names_read(&target->runtime, listing->interp, &target->names, &listing->names));
    remote_addr address = listing->interp->threads_head;
    for (size_t i = 0; address != 0 && i < MAX_SAMPLED_THREADS && target->thread_count < MAX_SAMPLED_THREADS; i++) {
        struct thread_state state;
        struct target_thread *known = NULL;
        enum status status = thread_state_read(&target->runtime, address, &state);
        if (status == STATUS_OK)
            known = find_thread(target, &state);
        if (status != STATUS_OK || state.interp != listing->interp->address || (known != NULL && known->listed)) {
            /* The list changed under our hands: the next look reads it again. */
            target->list_stale = true;
            return STATUS_OK;
        }
        address = state.next;
        if (known == NULL && is_unborn(target, &state)) {
            listing->unborn ^= state.address;
            continue;
        }
        TRY(known != NULL ? rename_thread(listing, known) : start_thread(listing, &state));
    }
    return STATUS_OK;
}

/* A list that was read while it changed can end too early without a sign: what lives has to be missing twice. */
static bool may_live(struct target_thread *thread) {
    bool was_missing = thread->missing;
    thread->missing = true;
    return !was_missing && !has_ended(thread);
}

static enum status end_unlisted(struct target *target) {
    for (size_t i = target->thread_count; i-- > 0;) {
        struct target_thread *thread = target->threads[i];
        if (thread->listed)
            thread->missing = false;
        else if (may_live(thread))
            target->list_stale = true;
        else
            TRY(end_thread(target, i));
    }
    return STATUS_OK;
}

/* A thread gets its name some time after it has begun, and nothing that is read all the time tells when. Soon at first,
 * then ever less often: there are threads that have none. */
static void plan_next_listing(struct target *target, const struct listing *listing) {
    bool unsettled = listing->unborn != 0;
    /* Some are never born: those of threads that call Python now and then. */
    if (listing->unborn != target->unborn)
        target->settle_ns = SETTLE_FIRST_NS;
    target->unborn = listing->unborn;
    for (size_t i = 0; i < target->thread_count && !unsettled; i++)
        unsettled = target->threads[i]->sampled.name == NULL;
    target->list_period_ns = unsettled && target->settle_ns < LIST_PERIOD_NS ? target->settle_ns : LIST_PERIOD_NS;
    target->settle_ns = target->settle_ns < LIST_PERIOD_NS ? target->settle_ns * 2 : LIST_PERIOD_NS;
    bool young = listing->now_ns - target->opened_ns < YOUNG_NS;
    if (young && target->list_period_ns > YOUNG_LIST_PERIOD_NS)
        target->list_period_ns = YOUNG_LIST_PERIOD_NS;
}

static enum status list_threads(struct target *target, uint64_t now_ns) {
    struct listing listing = {.target = target, .now_ns = now_ns};
    enum status status = read_system_threads(&listing);
    target->list_stale = false;
    target->listed_ns = now_ns;
    /* Names and thread objects are read through the page cache: what it holds is of the last listing. */
    memory_pages_clear(&target->pages);
    arena_release(&target->names);
    for (size_t i = 0; i < target->thread_count; i++)
        target->threads[i]->listed = false;
    for (size_t i = 0; i < target->interp_count && status == STATUS_OK; i++) {
        listing.interp = &target->interps[i];
        status = list_interp(&listing);
    }
    native_ids_release(&listing.native_ids);
    system_threads_release(&listing.system);
    TRY(status);
    target->listed_once = true;
    if (!target->list_stale)
        TRY(end_unlisted(target));
    plan_next_listing(target, &listing);
    return STATUS_OK;
}

static enum status forget_code(struct target *target) {
    for (size_t i = 0; i < target->thread_count; i++)
        TRY(target_thread_end_sleep(target->threads[i], target->sink, &target->counters));
    TRY(target->sink->code_forgotten(target->sink, &target->sampled));
    for (size_t i = 0; i < target->thread_count; i++) {
        target_thread_forget_stack(target->threads[i]);
    }
    seen_calls_release(&target->calls);
    code_cache_release(&target->codes);
    memory_pages_clear(&target->pages);
    return STATUS_OK;
}

static enum status lose(struct target *target) {
    if (!target->lost) {
        TRY(end_all_threads(target));
        TRY(forget_code(target));
        target->lost_ns = clock_monotonic_ns();
    }
    target->lost = true;
    target->interp_count = 0;
    return STATUS_OK;
}

enum status target_follow_exec(struct target *target) {
    target->reopened_ns = 0;
    return lose(target);
}

/* The interpreter is gone: it ended, or the process became another program. */
static enum status reopen(struct target *target, uint64_t now_ns) {
    struct error ignored = {0};
    if (target->lost && now_ns - target->reopened_ns < REOPEN_PERIOD_NS)
        return STATUS_OK;
    target->reopened_ns = now_ns;
    if (!process_alive(target->process))
        return STATUS_NO_PROCESS;
    TRY(lose(target));
    if (open_runtime(target, &ignored) != STATUS_OK)
        return STATUS_OK;
    target->lost = false;
    return target->sink->process_started(target->sink, &target->sampled);
}

/* Brings what changes slowly up to date. */
static enum status refresh(struct target *target, uint64_t now_ns) {
    if (target->lost)
        return reopen(target, now_ns);
    bool due = now_ns - target->interps_read_ns >= INTERP_PERIOD_NS;
    if (!due && target->options.mode != SAMPLING_GIL && !target->list_stale)
        return STATUS_OK;
    target->interps_read_ns = now_ns;
    enum status status = read_interps(target);
    if (status == STATUS_FAILED)
        return status;
    /* The same program again may have everything where it was. */
    bool is_other = process_exec_count(target->process) != target->exec_count;
    if (status != STATUS_OK || target->interp_count == 0 || is_other)
        return reopen(target, now_ns);
    if (target->restarted) {
        TRY(end_all_threads(target));
        TRY(forget_code(target));
        target->list_stale = true;
        /* Its first thread is about to be born. */
        target->opened_ns = now_ns;
        target->settle_ns = SETTLE_FIRST_NS;
    }
    target->restarted = false;
    TRY(find_library(target, now_ns));
    uint64_t epoch_period_ns = target->codes.reused > 0 ? CHURN_PERIOD_NS : EPOCH_PERIOD_NS;
    if (now_ns - target->epoch_ns >= epoch_period_ns) {
        target->epoch_ns = now_ns;
        target->codes.reused -= target->codes.reused > 0;
        code_cache_start_epoch(&target->codes);
        for (size_t i = 0; i < target->thread_count; i++)
            target_thread_check_codes(target->threads[i], &target->codes);
        if (target->codes.size_bytes > MAX_CODE_BYTES || target->codes.dead_count > MAX_DEAD_CODE)
            TRY(forget_code(target));
    }
    size_t system_count = process_thread_count(target->process);
    if (system_count == 0)
        return STATUS_NO_PROCESS;
    if (target->list_stale || system_count != target->system_thread_count ||
        now_ns - target->listed_ns >= target->list_period_ns)
        return list_threads(target, now_ns);
    return STATUS_OK;
}

static const struct interp *interp_of(const struct target *target, const struct target_thread *thread) {
    for (size_t i = 0; i < target->interp_count; i++)
        if (target->interps[i].address == thread->interp)
            return &target->interps[i];
    return NULL;
}

static enum status finish_group(struct target *target, struct thread_look *look, const struct interp *interp) {
    if (target->group.count == 0)
        return STATUS_OK;
    look->interp = interp;
    return thread_group_finish(&target->group, look, &target->list_stale);
}

/* Wall time: also of threads that wait, of which there may be many. *grouped: the interpreter of those that are still
 * to be finished. */
static enum status look_at_thread(struct target *target, struct thread_look *look, struct target_thread *thread,
                                  const struct interp **grouped) {
    bool wanted = false;
    const struct interp *interp = look->interp;
    TRY(target_thread_begin_look(thread, look, &wanted));
    if (!wanted)
        return STATUS_OK;
    if (interp->gil == 0 || !target_thread_stands_still(thread, look))
        return target_thread_finish_look(thread, look);
    if (interp != *grouped || target->group.count == THREAD_GROUP_SIZE)
        TRY(finish_group(target, look, *grouped));
    look->interp = *grouped = interp;
    thread_group_add(&target->group, thread);
    return STATUS_OK;
}

static enum status look_at_threads(struct target *target, uint64_t now_ns) {
    struct thread_look look = {.options = &target->options,
                               .runtime = &target->runtime,
                               .counters = &target->counters,
                               .sink = target->sink,
                               .gil_bytes = target->runtime.layout.gil.size,
                               .now_ns = now_ns};
    const struct interp *grouped = NULL;
    target->group.count = 0;
    for (size_t i = 0; i < target->thread_count; i++) {
        look.interp = interp_of(target, target->threads[i]);
        if (look.interp == NULL)
            continue;
        enum status status = target->options.mode == SAMPLING_WAIT
                                 ? target_thread_look_waiting(target->threads[i], &look)
                                 : look_at_thread(target, &look, target->threads[i], &grouped);
        if (status == STATUS_NO_PROCESS)
            target->list_stale = true;
        else
            TRY(status);
    }
    return finish_group(target, &look, grouped);
}

/* A stopped thread tells nothing of what it was doing in the kernel. */
static enum status read_threads_before_pause(struct target *target, uint64_t now_ns) {
    for (size_t i = 0; i < target->thread_count; i++) {
        enum status status = target_thread_read_before_pause(target->threads[i], now_ns);
        if (status == STATUS_NO_PROCESS)
            target->list_stale = true;
        else
            TRY(status);
    }
    return STATUS_OK;
}

/* Who holds the GIL and who collects garbage is to be of the same instant as the stacks. */
static enum status look_while_paused(struct target *target, uint64_t now_ns) {
    enum status status = read_interps(target);
    if (status == STATUS_OK)
        return look_at_threads(target, now_ns);
    /* Gone or becoming another program: the next look finds out. */
    target->interps_read_ns = 0;
    return status == STATUS_FAILED ? status : STATUS_OK;
}

static enum status look_blocking(struct target *target, uint64_t now_ns) {
    struct error ignored = {0};
    TRY(read_threads_before_pause(target, now_ns));
    enum status status = process_pause(target->process, &ignored);
    if (status == STATUS_NO_PROCESS)
        return status;
    if (status != STATUS_OK) {
        target->counters.errors++;
        return STATUS_OK;
    }
    status = look_while_paused(target, now_ns);
    process_resume(target->process);
    return status;
}

enum status target_look(struct target *target, uint64_t now_ns) {
    /* Objects die, and others take their places: what a look reads of them is of its own time. */
    memory_pages_clear(&target->pages);
    target->budget = look_budget;
    TRY(refresh(target, now_ns));
    if (target->lost)
        return STATUS_OK;
    return target->options.blocking ? look_blocking(target, now_ns) : look_at_threads(target, now_ns);
}
