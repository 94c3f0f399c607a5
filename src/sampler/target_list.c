/* Which interpreters and threads a process has. */
#include "base/array.h"
#include "sampler/native_ids.h"
#include "sampler/target_parts.h"

#include <stdlib.h>
#include <string.h>

/* Threads that come and go are noticed by counts and list heads; this is for what those do not show (names). */
static const uint64_t LIST_PERIOD_NS = NS_PER_S;
/* The same of a process just started: a forked one lists its parent's threads until it has tidied up. */
static const uint64_t YOUNG_LIST_PERIOD_NS = 5 * NS_PER_MS;
static const uint64_t YOUNG_NS = 50 * NS_PER_MS;
/* Of a process; what is remembered of each is some 10 KiB. */
enum { MAX_SAMPLED_THREADS = 1 << 14 };

enum status target_end_thread(struct target *target, size_t index) {
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

static enum status add_interp(struct target *target, const struct interp *interp) {
    TRY(array_reserve((void **)&target->interps, &target->interp_capacity, target->interp_count + 1,
                      sizeof target->interps[0]));
    target->interps[target->interp_count++] = *interp;
    return STATUS_OK;
}

/* A main interpreter that was finalized and begun again may have the address that it had before, and so may its thread
 * and its code; the modules go and come. Others come and go as the program likes. */
static bool is_another_main(const struct interp *interp, remote_addr old_address, remote_addr old_modules) {
    if (interp->address != old_address)
        return old_address != 0;
    return interp->modules != 0 && old_modules != 0 && interp->modules != old_modules;
}

enum status target_read_interps(struct target *target) {
    size_t old_count = target->interp_count, count = 0;
    remote_addr address = 0, left_behind = 0;
    /* The main interpreter is the oldest, the last in the list (Python/pystate.c). */
    remote_addr old_main = old_count > 0 ? target->interps[old_count - 1].address : 0;
    remote_addr old_modules = old_count > 0 ? target->interps[old_count - 1].last_modules : 0;
    TRY(interp_first(&target->runtime, &address));
    while (address != 0 && count < MAX_INTERPRETERS) {
        struct interp interp;
        if (address == left_behind)
            return STATUS_TORN; /* a ring */
        if ((count & (count - 1)) == 0)
            left_behind = address;
        TRY(interp_read(&target->runtime, address, &interp));
        bool known = count < old_count && target->interps[count].address == address;
        bool same = known && target->interps[count].threads_head == interp.threads_head;
        if (interp.next == 0)
            target->restarted |= is_another_main(&interp, old_main, old_modules);
        /* One that is shutting down has none any more, and is the same for a while. */
        interp.last_modules = interp.modules != 0 ? interp.modules : interp.address == old_main ? old_modules : 0;
        if (count < target->interp_count)
            target->interps[count] = interp;
        else
            TRY(add_interp(target, &interp));
        target->list_stale |= !same;
        address = interp.next;
        count++;
    }
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
    if (array_reserve((void **)&target->threads, &target->thread_capacity, target->thread_count + 1,
                      sizeof(struct target_thread *)) != STATUS_OK)
        return NULL;
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
    target->settle_ns = TARGET_SETTLE_FIRST_NS;
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
            TRY(target_end_thread(target, i));
    }
    return STATUS_OK;
}

/* A thread gets its name some time after it has begun, and nothing that is read all the time tells when. Soon at first,
 * then ever less often: there are threads that have none. */
static void plan_next_listing(struct target *target, const struct listing *listing) {
    bool unsettled = listing->unborn != 0;
    /* Some are never born: those of threads that call Python now and then. */
    if (listing->unborn != target->unborn)
        target->settle_ns = TARGET_SETTLE_FIRST_NS;
    target->unborn = listing->unborn;
    for (size_t i = 0; i < target->thread_count && !unsettled; i++)
        unsettled = target->threads[i]->sampled.name == NULL;
    target->list_period_ns = unsettled && target->settle_ns < LIST_PERIOD_NS ? target->settle_ns : LIST_PERIOD_NS;
    target->settle_ns = target->settle_ns < LIST_PERIOD_NS ? target->settle_ns * 2 : LIST_PERIOD_NS;
    bool young = listing->now_ns - target->opened_ns < YOUNG_NS;
    if (young && target->list_period_ns > YOUNG_LIST_PERIOD_NS)
        target->list_period_ns = YOUNG_LIST_PERIOD_NS;
}

enum status target_list_threads(struct target *target, uint64_t now_ns) {
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
