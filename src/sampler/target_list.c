/* Which interpreters and threads a process has. */
#include "base/array.h"
#include "sampler/target_parts.h"
#include "sampler/thread_finder.h"

#include <stdlib.h>
#include <string.h>

/* Threads that come and go are noticed by counts and list heads; this is for what those do not show (names). */
static const uint64_t LIST_PERIOD_NS = NS_PER_S;
/* The same of a process just started: a forked one lists its parent's threads until it has tidied up. */
static const uint64_t YOUNG_LIST_PERIOD_NS = 5 * NS_PER_MS;
static const uint64_t YOUNG_NS = 50 * NS_PER_MS;
/* Of a process; what is remembered of each is some 10 KiB. */
enum { MAX_SAMPLED_THREADS = 1 << 14 };
/* So many thread states are read at a time. */
enum { STATES_AHEAD = 64 };
/* Of states without a frame whose threads have ended (they are left behind by C code), so many are tried a listing. */
enum { MAX_VAIN_STARTS = 64 };
/* How often at least is looked again whether those that are nobody's yet have a frame. */
static const uint64_t UNBORN_PERIOD_NS = 32 * NS_PER_MS;

enum status target_end_thread(struct target *target, size_t index) {
    struct target_thread *thread = target->threads[index];
    target->threads[index] = target->threads[--target->thread_count];
    enum status status = target_thread_end_sleep(thread, target->sink, &target->counters);
    enum status ended = target_thread_end_work(thread, target->sink, &target->counters);
    status = status == STATUS_OK ? ended : status;
    target_leave_sharers(thread);
    ended = target_finish_thread(target, thread);
    return status == STATUS_OK ? ended : status;
}

enum status target_finish_thread(struct target *target, struct target_thread *thread) {
    enum status status = target->sink->thread_ended(target->sink, &thread->sampled);
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
        TRY(interp_read_births(&target->runtime, address, &interp.births));
        bool known = count < old_count && target->interps[count].address == address;
        bool same = known && target->interps[count].threads_head == interp.threads_head &&
                    target->interps[count].births == interp.births;
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

/* To be found by its state. */
static enum status index_thread(struct target *target, struct target_thread *thread) {
    uint64_t other = 0;
    thread->namesake =
        map_get(&target->by_address, thread->state.address, &other) ? (struct target_thread *)(uintptr_t)other : NULL;
    return map_set(&target->by_address, thread->state.address, (uint64_t)(uintptr_t)thread);
}

/* A new thread often has the address and the stack, which is the id, of one that has just ended. And one that did not
 * end in Python leaves its state in the list. */
static struct target_thread *find_thread(const struct target *target, const struct thread_state *state) {
    uint64_t first = 0;
    if (!map_get(&target->by_address, state->address, &first))
        return NULL;
    for (struct target_thread *thread = (struct target_thread *)(uintptr_t)first; thread != NULL;
         thread = thread->namesake)
        if (target_thread_has_ids_of(thread, state) &&
            (state->native_thread_id != 0 ? !thread->gone : !target_thread_has_ended(thread)))
            return thread;
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

/* Thread states that were read in one call, as the list was when it was read last. */
struct states_ahead {
    uint8_t bytes[STATES_AHEAD][THREAD_STATE_MAX_BYTES];
    struct memory_piece pieces[STATES_AHEAD];
    size_t count;
    size_t next;
};

/* What one reading of the list has at hand to tell who the threads are. */
struct listing {
    struct target *target;
    const struct interp *interp;
    struct thread_state *fresh; /* of this interpreter, those that are to be started */
    size_t fresh_count;
    size_t fresh_capacity;
    struct thread_names names;
    bool all_names;
    struct map wanted;  /* else: of the threads with these ids */
    struct map bearers; /* the ids of either kind of threads that are known, when `bearers_known` */
    bool bearers_known;
    unsigned vain_starts;
    struct thread_finder finder;
    struct states_ahead ahead;
    bool no_files;   /* there are no descriptors left */
    uint64_t unborn; /* the addresses of thread states that have run nothing yet, put together; 0: there are none */
    uint64_t now_ns;
};

static bool has_ids(const struct target *target, const struct thread_state *state) {
    bool has_native_id = layout_has(target->runtime.layout.thread.native_thread_id);
    return state->thread_id != 0 && (!has_native_id || state->native_thread_id != 0);
}

/* The user is told of threads that strobe could not watch for want of descriptors. They are tried again. */
static void watch_thread(struct listing *listing, struct target_thread *thread) {
    if (thread->tid == 0 || thread->gone)
        return;
    enum status status = listing->no_files ? STATUS_NO_FILES : target_thread_watch(thread, listing->target->process);
    listing->no_files |= status == STATUS_NO_FILES;
    thread->gone = status == STATUS_NO_PROCESS;
    if (status == STATUS_NO_FILES && !thread->unwatched)
        listing->target->counters.unwatched++;
    thread->unwatched |= status == STATUS_NO_FILES;
}

/* What a thread had used when looks at it began. The first one of a process whose birth was seen began there: looks are
 * late where strobe gets no processor. One that was not there when all were known last has been born since. */
static uint64_t cpu_before(const struct listing *listing, const struct target_thread *thread) {
    const struct target *target = listing->target;
    uint64_t cpu_ns = thread->activity.cpu_ns, most_ns = listing->now_ns - target->surveyed_ns;
    bool is_wait = target->options.mode == SAMPLING_WAIT;
    if (target->listed_once && !is_wait)
        return cpu_ns > most_ns ? cpu_ns - most_ns : 0;
    bool is_first = !target->listed_once && target_is_main_thread(target, thread->sampled.native_id);
    return is_wait && is_first && target->strange_cpu_ns < cpu_ns ? target->strange_cpu_ns : cpu_ns;
}

static const struct thread_name *find_name(const struct listing *listing, const struct target_thread *thread) {
    const struct thread_name *name = thread_names_find(&listing->names, thread->thread_id);
    uint64_t native_id = thread->sampled.native_id;
    bool is_own =
        name == NULL || target_is_main_thread(listing->target, native_id) || thread_name_is_of(name, native_id);
    return is_own ? name : NULL;
}

static enum status start_thread(struct listing *listing, const struct thread_state *state) {
    struct target *target = listing->target;
    struct system_thread system;
    enum status status =
        thread_finder_find(&listing->finder, state, thread_names_find(&listing->names, state->thread_id), &system);
    if (status != STATUS_OK)
        return status == STATUS_NO_PROCESS ? STATUS_OK : status;
    target->settle_ns = TARGET_SETTLE_FIRST_NS;
    struct target_thread *thread = add_thread(target);
    if (thread == NULL)
        return STATUS_FAILED;
    target_thread_take_state(thread, state);
    TRY(index_thread(target, thread));
    stack_tracker_init(&thread->tracker, &target->runtime, &target->codes);
    thread->tracker.calls = &target->calls;
    thread->tracker.nearby = &target->nearby;
    linked_tracker_init(&thread->linked, &target->runtime, &target->codes);
    thread->listed = true;
    /* The first sample stands for the time since it was not there, or since the start: so threads have their share
     * however short they live. */
    thread->sampled_ns = target->listed_once ? target->surveyed_ns : target->sampled.start_ns;
    thread->sampled = (struct sampled_thread){.process = &target->sampled,
                                              .native_id = (uint64_t)system.own_tid,
                                              .thread_id = state->thread_id,
                                              .interpreter = listing->interp->id};
    thread->tid = system.tid;
    thread->run = system.state;
    thread->wait.from_ns = clock_monotonic_ns();
    watch_thread(listing, thread);
    if (thread->watch != NULL)
        thread->cpu_start_ns = cpu_before(listing, thread);
    const struct thread_name *name = find_name(listing, thread);
    if (name != NULL)
        thread->sampled.name = strdup(name->name);
    else if (target_is_main_thread(target, thread->sampled.native_id))
        thread->sampled.name = strdup("MainThread");
    return target->sink->thread_started(target->sink, &thread->sampled);
}

static enum status rename_thread(struct listing *listing, struct target_thread *thread) {
    const struct thread_name *name = find_name(listing, thread);
    if (name == NULL || (thread->sampled.name != NULL && strcmp(name->name, thread->sampled.name) == 0))
        return STATUS_OK;
    free((char *)(uintptr_t)thread->sampled.name);
    thread->sampled.name = strdup(name->name);
    return listing->target->sink->thread_renamed(listing->target->sink, &thread->sampled);
}

/* From `address` on, those of threads that are known. None where one cannot be read: then they are read one by one. */
static void read_ahead(struct listing *listing, remote_addr address) {
    const struct target *target = listing->target;
    struct states_ahead *ahead = &listing->ahead;
    size_t span = thread_state_span(&target->runtime.layout), count = 0;
    uint64_t thread = 0;
    while (count < STATES_AHEAD && span <= THREAD_STATE_MAX_BYTES && map_get(&target->by_address, address, &thread)) {
        ahead->pieces[count] = (struct memory_piece){address, ahead->bytes[count], span};
        address = ((struct target_thread *)(uintptr_t)thread)->state.next;
        count++;
    }
    ahead->next = 0;
    ahead->count = count > 1 && memory_read_pieces(target->runtime.live, ahead->pieces, count) == STATUS_OK ? count : 0;
}

static bool is_ahead(const struct states_ahead *ahead, remote_addr address) {
    return ahead->next < ahead->count && ahead->pieces[ahead->next].address == address;
}

/* *known: the thread that the state is of. Of one that is known, `frame` is not to be relied upon. */
static enum status read_state(struct listing *listing, remote_addr address, struct thread_state *state,
                              struct target_thread **known) {
    struct target *target = listing->target;
    struct states_ahead *ahead = &listing->ahead;
    if (!is_ahead(ahead, address))
        read_ahead(listing, address);
    if (is_ahead(ahead, address)) {
        thread_state_decode(&target->runtime.layout, address, ahead->bytes[ahead->next++], state);
        *known = find_thread(target, state);
        if (*known != NULL)
            return STATUS_OK;
    }
    TRY(thread_state_read(&target->runtime, address, state));
    *known = find_thread(target, state);
    return STATUS_OK;
}

/* Marks the threads that are in the list, and gathers those that are new. */
static enum status walk_list(struct listing *listing) {
    struct target *target = listing->target;
    remote_addr address = listing->interp->threads_head, left_behind = 0;
    listing->fresh_count = 0;
    listing->ahead.count = 0;
    for (size_t i = 0; address != 0 && i < MAX_SAMPLED_THREADS; i++) {
        struct thread_state state;
        struct target_thread *known = NULL;
        enum status status = read_state(listing, address, &state, &known);
        if (status != STATUS_OK || state.interp != listing->interp->address || (known != NULL && known->listed) ||
            address == left_behind) {
            /* The list changed under our hands: the next look reads it again. */
            target->list_stale = true;
            return STATUS_OK;
        }
        if ((i & (i - 1)) == 0)
            left_behind = address;
        address = state.next;
        if (known != NULL) {
            if (known->missing)
                target_thread_resume(known, &state, target->options.mode, target->surveyed_ns);
            known->listed = true;
            known->state.next = state.next;
        } else if (!has_ids(target, &state)) {
            listing->unborn ^= state.address;
        } else {
            TRY(array_reserve((void **)&listing->fresh, &listing->fresh_capacity, listing->fresh_count + 1,
                              sizeof state));
            listing->fresh[listing->fresh_count++] = state;
        }
    }
    return STATUS_OK;
}

static bool is_listed_here(const struct listing *listing, const struct target_thread *thread) {
    return thread->listed && thread->interp == listing->interp->address;
}

/* Of a thread that has a name it is read anew only now and then. */
static enum status read_names(struct listing *listing) {
    struct target *target = listing->target;
    map_clear(&listing->wanted);
    for (size_t i = 0; i < listing->fresh_count; i++)
        TRY(map_set(&listing->wanted, listing->fresh[i].thread_id, 0));
    for (size_t i = 0; i < target->thread_count; i++)
        if (is_listed_here(listing, target->threads[i]) && target->threads[i]->sampled.name == NULL)
            TRY(map_set(&listing->wanted, target->threads[i]->thread_id, 0));
    listing->names = (struct thread_names){0};
    if (!listing->all_names && listing->wanted.count == 0)
        return STATUS_OK;
    return thread_names_read(&target->runtime, listing->interp, listing->all_names ? NULL : &listing->wanted,
                             &target->names, &listing->names);
}

static enum status gather_bearers(struct listing *listing) {
    const struct target *target = listing->target;
    if (listing->bearers_known)
        return STATUS_OK;
    listing->bearers_known = true;
    for (size_t i = 0; i < target->thread_count; i++) {
        TRY(map_set(&listing->bearers, target->threads[i]->thread_id, 0));
        TRY(map_set(&listing->bearers, target->threads[i]->sampled.native_id, 0));
    }
    return STATUS_OK;
}

/* One of its ids is another's. A thread sets them one after the other, with a system call between them. */
static bool bears_ids_of_another(const struct listing *listing, const struct thread_state *state) {
    uint64_t ignored = 0;
    return map_get(&listing->bearers, state->thread_id, &ignored) ||
           (state->native_thread_id != 0 && map_get(&listing->bearers, state->native_thread_id, &ignored));
}

/* Up to 3.11 a state bears its creator's ids until the thread itself runs (Modules/_threadmodule.c), later it has none;
 * the one that an interpreter begins with bears those of the thread that made it. So what has no frame, and the ids of
 * another, is nobody's yet. C threads that call Python now and then have no frame most of the time, but ids of their
 * own. */
static enum status start_without_frame(struct listing *listing, const struct thread_state *state) {
    struct target *target = listing->target;
    if (listing->vain_starts == MAX_VAIN_STARTS)
        return STATUS_OK;
    TRY(gather_bearers(listing));
    if (bears_ids_of_another(listing, state)) {
        listing->unborn ^= state->address;
        return STATUS_OK;
    }
    size_t count = target->thread_count;
    TRY(start_thread(listing, state));
    listing->vain_starts += target->thread_count == count;
    return STATUS_OK;
}

/* Of a thread that has begun between the reads of its ids and of its frame (in 3.11 that takes two), the ids are its
 * creator's still. STATUS_NOT_FOUND: it has ended since. */
static enum status correct_ids(struct listing *listing, struct thread_state *state) {
    struct target *target = listing->target;
    struct thread_state now;
    TRY(gather_bearers(listing));
    if (!bears_ids_of_another(listing, state))
        return STATUS_OK;
    enum status status = thread_state_read(&target->runtime, state->address, &now);
    if (status == STATUS_OK && now.interp == state->interp && has_ids(target, &now)) {
        *state = now;
        return STATUS_OK;
    }
    target->list_stale = true;
    return status == STATUS_FAILED ? status : STATUS_NOT_FOUND;
}

static enum status start_with_frame(struct listing *listing, struct thread_state *state) {
    enum status status = correct_ids(listing, state);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    return state->frame != 0 && find_thread(listing->target, state) == NULL ? start_thread(listing, state) : STATUS_OK;
}

/* Of the threads that are new those that have a frame, or those that have none. The oldest, the main one, first. A list
 * that changes can lead by a thread twice. */
static enum status start_fresh(struct listing *listing, bool with_frame) {
    struct target *target = listing->target;
    for (size_t i = listing->fresh_count; i-- > 0 && target->thread_count < MAX_SAMPLED_THREADS;) {
        struct thread_state *state = &listing->fresh[i];
        if ((state->frame != 0) != with_frame || find_thread(target, state) != NULL)
            continue;
        TRY(with_frame ? start_with_frame(listing, state) : start_without_frame(listing, state));
        TRY(map_set(&listing->bearers, state->thread_id, 0));
        TRY(map_set(&listing->bearers, state->native_thread_id, 0));
    }
    return STATUS_OK;
}

/* Of the states that are new, those of threads that had another before. */
static enum status wake_threads(struct listing *listing) {
    struct target *target = listing->target;
    size_t kept = 0;
    for (size_t i = 0; i < listing->fresh_count; i++) {
        struct target_thread *thread = NULL;
        TRY(target_wake_thread(target, &listing->fresh[i], listing->interp, &thread));
        if (thread == NULL) {
            listing->fresh[kept++] = listing->fresh[i];
            continue;
        }
        thread->listed = true;
        TRY(index_thread(target, thread));
    }
    listing->fresh_count = kept;
    return STATUS_OK;
}

static enum status list_interp(struct listing *listing) {
    struct target *target = listing->target;
    TRY(walk_list(listing));
    TRY(wake_threads(listing));
    TRY(read_names(listing));
    for (size_t i = 0; i < target->thread_count; i++) {
        struct target_thread *thread = target->threads[i];
        if (is_listed_here(listing, thread))
            TRY(rename_thread(listing, thread));
    }
    listing->bearers_known = false;
    map_clear(&listing->bearers);
    TRY(start_fresh(listing, true));
    return start_fresh(listing, false);
}

/* A list that was read while it changed can end too early without a sign: what lives has to be missing twice. */
static enum status note_missing(struct target *target, struct target_thread *thread) {
    thread->missing = true;
    target->list_stale = true;
    target->rested_ns = target->listed_ns;
    return target_thread_rest(thread, target->sink, &target->counters);
}

static enum status end_unlisted(struct target *target) {
    for (size_t i = target->thread_count; i-- > 0;) {
        struct target_thread *thread = target->threads[i];
        if (thread->listed)
            thread->missing = false;
        else if (!thread->missing && !target_thread_has_ended(thread))
            TRY(note_missing(target, thread));
        else
            TRY(target_may_rest(thread) ? target_rest_thread(target, i) : target_end_thread(target, i));
    }
    return target_end_resting(target, false);
}

/* A thread gets its name some time after it has begun, and nothing that is read all the time tells when. Soon at first,
 * then ever less often: there are threads that have none. */
static void plan_next_listing(struct target *target, const struct listing *listing) {
    bool unsettled = listing->unborn != 0;
    /* Some are born late, as those of threads that run code of another interpreter now and then, and some never. */
    if (listing->unborn != target->unborn)
        target->settle_ns = TARGET_SETTLE_FIRST_NS;
    target->unborn = listing->unborn;
    for (size_t i = 0; i < target->thread_count && !unsettled; i++)
        unsettled = target->threads[i]->sampled.name == NULL;
    target->list_period_ns = unsettled && target->settle_ns < LIST_PERIOD_NS ? target->settle_ns : LIST_PERIOD_NS;
    if (listing->unborn != 0 && target->list_period_ns > UNBORN_PERIOD_NS)
        target->list_period_ns = UNBORN_PERIOD_NS;
    target->settle_ns = target->settle_ns < LIST_PERIOD_NS ? target->settle_ns * 2 : LIST_PERIOD_NS;
    bool young = listing->now_ns - target->opened_ns < YOUNG_NS;
    if (young && target->list_period_ns > YOUNG_LIST_PERIOD_NS)
        target->list_period_ns = YOUNG_LIST_PERIOD_NS;
}

/* There are descriptors again when others have ended. */
static void watch_unwatched(struct listing *listing) {
    listing->no_files = false;
    for (size_t i = 0; i < listing->target->thread_count; i++) {
        struct target_thread *thread = listing->target->threads[i];
        if (thread->listed && thread->watch == NULL)
            watch_thread(listing, thread);
    }
}

static enum status list_all(struct listing *listing) {
    struct target *target = listing->target;
    /* Before: what comes or goes meanwhile is noticed at the next look. */
    target->system_thread_count = process_thread_count(target->process);
    map_clear(&target->by_address);
    for (size_t i = 0; i < target->thread_count; i++) {
        target->threads[i]->listed = false;
        TRY(index_thread(target, target->threads[i]));
    }
    /* The oldest, the main one, first: what the others begin with bears the ids of one of its threads. */
    for (size_t i = target->interp_count; i-- > 0;) {
        listing->interp = &target->interps[i];
        TRY(list_interp(listing));
    }
    return STATUS_OK;
}

enum status target_list_threads(struct target *target, uint64_t now_ns) {
    struct listing listing = {.target = target, .finder = {.target = target}, .now_ns = now_ns};
    bool young = now_ns - target->opened_ns < YOUNG_NS;
    listing.all_names = young || now_ns - target->names_read_ns >= LIST_PERIOD_NS;
    if (listing.all_names)
        target->names_read_ns = now_ns;
    target->list_stale = false;
    target->listed_ns = now_ns;
    /* Names and thread objects are read through the page cache: what it holds is of the last listing. */
    memory_pages_clear(&target->pages);
    arena_release(&target->names);
    enum status status = list_all(&listing);
    thread_finder_release(&listing.finder);
    map_release(&listing.wanted);
    map_release(&listing.bearers);
    free(listing.fresh);
    TRY(status);
    target->listed_once = true;
    if (!target->list_stale) {
        target->surveyed_ns = now_ns;
        TRY(end_unlisted(target));
    }
    watch_unwatched(&listing);
    TRY(target_find_sharers(target));
    plan_next_listing(target, &listing);
    return STATUS_OK;
}
