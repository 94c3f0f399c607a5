#include "base/clock.h"
#include "cpython/library.h"
#include "sampler/attach_runtime.h"
#include "sampler/target_parts.h"
#include "wire/region.h"

#include <stdlib.h>
#include <string.h>

/* Interpreters and what they say of the GIL and the collector: often, but not at every look of a fast rate. */
static const uint64_t INTERP_PERIOD_NS = NS_PER_MS;
/* The same while there are threads whose states come and go, as it seems. */
static const uint64_t RESTLESS_PERIOD_NS = 100 * NS_PER_US;
static const uint64_t RESTLESS_NS = 100 * NS_PER_MS;
/* How long to look for the standard library: a program may do without. */
static const uint64_t LIBRARY_SEARCH_NS = 2 * NS_PER_S;
enum { MAX_LIBRARY_BYTES = 1 << 14 };
/* Between two tries to find Python again after an exec: it may be there any moment, or never. Each pause is twice the
 * one before. */
static const uint64_t FIRST_REOPEN_NS = 2 * NS_PER_MS;
static const uint64_t LAST_REOPEN_NS = 50 * NS_PER_MS;
/* How long another code object may pass for one that died and whose address it has taken. */
static const uint64_t EPOCH_PERIOD_NS = 100 * NS_PER_MS;
/* The same where code was seen to die not long ago. */
static const uint64_t CHURN_PERIOD_NS = 2 * NS_PER_MS;
/* Code of which more than this was decoded is forgotten, to be decoded anew where it still runs. */
static const size_t MAX_CODE_BYTES = 16 << 20;
/* Code that is known to be dead is kept, too, until then: what was sampled may refer to it. */
static const uint32_t MAX_DEAD_CODE = 2000;
/* What one look may cost: the first at a thousand threads of ten thousand frames each takes half of it on the versions
 * that need most. What it does not suffice for is counted as an error. */
static const struct budget look_budget = {.reads_left = UINT64_C(1) << 24, .bytes_left = UINT64_C(1) << 33};

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
    target->settle_ns = TARGET_SETTLE_FIRST_NS;
    target->strange_cpu_ns = UINT64_MAX;
    target->sampled = (struct sampled_process){
        .process = process,
        .pid = process_pid(process),
        .parent_pid = parent_pid,
        .paused = options->paused,
        .counters = &target->counters,
    };
    memory_pages_init(&target->pages, process_memory(process));
    memory_meter_init(&target->live, process_memory(process), &target->budget);
    memory_meter_init(&target->objects, &target->pages.memory, &target->budget);
    memory_pages_init_sized(&target->nearby, &target->live.memory, TRACKER_NEARBY_BYTES);
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
    target->codes.is_sampling = true;
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

static enum status end_all_threads(struct target *target) {
    enum status status = STATUS_OK;
    while (target->thread_count > 0) {
        enum status ended = target_end_thread(target, target->thread_count - 1);
        status = status == STATUS_OK ? ended : status;
    }
    enum status ended = target_end_resting(target, true);
    return status == STATUS_OK ? ended : status;
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
    memory_pages_release(&target->nearby);
    memory_pages_release(&target->pages);
    arena_release(&target->names);
    map_release(&target->by_address);
    process_free(target->process);
    free(target->library);
    free(target->interps);
    free(target->threads);
    free(target->resting);
    thread_group_release(&target->group);
    free(target);
    return status == STATUS_OK ? ended : status;
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
        target->reopen_pause_ns = 0;
    }
    target->lost = true;
    target->interp_count = 0;
    return STATUS_OK;
}

enum status target_follow_exec(struct target *target) {
    target->reopen_pause_ns = 0;
    return lose(target);
}

static void pause_before_reopening(struct target *target, uint64_t now_ns) {
    uint64_t pause_ns = 2 * target->reopen_pause_ns;
    pause_ns = pause_ns > FIRST_REOPEN_NS ? pause_ns : FIRST_REOPEN_NS;
    target->reopen_pause_ns = pause_ns < LAST_REOPEN_NS ? pause_ns : LAST_REOPEN_NS;
    target->reopened_ns = now_ns;
}

/* The interpreter is gone, or no thread is there: it ended, or the process became, or becomes, another program. */
static enum status reopen(struct target *target, uint64_t now_ns) {
    struct error ignored = {0};
    /* The first thread can have ended before others when the process ends: that is soon over, and no other program. */
    if (!process_alive(target->process))
        return STATUS_NO_PROCESS;
    if (target->lost && now_ns - target->reopened_ns < target->reopen_pause_ns)
        return STATUS_OK;
    TRY(lose(target));
    pause_before_reopening(target, now_ns);
    if (open_runtime(target, &ignored) != STATUS_OK)
        return STATUS_OK;
    target->lost = false;
    target->surveyed_ns = now_ns;
    return target->sink->process_started(target->sink, &target->sampled);
}

/* Brings what changes slowly up to date. */
static enum status refresh(struct target *target, uint64_t now_ns) {
    if (target->lost)
        return reopen(target, now_ns);
    bool restless = target->rested_ns != 0 && now_ns - target->rested_ns < RESTLESS_NS;
    uint64_t period_ns = restless ? RESTLESS_PERIOD_NS : INTERP_PERIOD_NS;
    bool due = now_ns - target->interps_read_ns >= period_ns;
    if (!due && target->options.mode != SAMPLING_GIL && !target->list_stale)
        return STATUS_OK;
    target->interps_read_ns = now_ns;
    enum status status = target_read_interps(target);
    /* One of several may have been freed just then. */
    if (status != STATUS_OK && status != STATUS_FAILED)
        status = target_read_interps(target);
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
        target->surveyed_ns = now_ns;
        target->settle_ns = TARGET_SETTLE_FIRST_NS;
    }
    target->restarted = false;
    TRY(find_library(target, now_ns));
    uint64_t epoch_period_ns = target->codes.reused > 0 ? CHURN_PERIOD_NS : EPOCH_PERIOD_NS;
    if (now_ns - target->epoch_ns >= epoch_period_ns) {
        target->epoch_ns = now_ns;
        target->codes.reused -= target->codes.reused > 0;
        code_cache_start_epoch(&target->codes);
        for (size_t i = 0; i < target->thread_count; i++)
            TRY(target_thread_check_codes(target->threads[i], &target->codes, target->sink, &target->counters));
        if (target->codes.size_bytes > MAX_CODE_BYTES || target->codes.dead_count > MAX_DEAD_CODE)
            TRY(forget_code(target));
    }
    size_t system_count = process_thread_count(target->process);
    if (system_count == 0)
        return reopen(target, now_ns);
    if (!target->list_stale && system_count == target->system_thread_count &&
        now_ns - target->listed_ns < target->list_period_ns) {
        target->surveyed_ns = now_ns;
        return STATUS_OK;
    }
    status = target_list_threads(target, now_ns);
    return status == STATUS_NO_PROCESS ? reopen(target, now_ns) : status;
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

static bool has_gil(const struct target *target) {
    for (size_t i = 0; i < target->interp_count; i++)
        if (target->interps[i].gil != 0)
            return true;
    return false;
}

static enum status read_requests(struct target *target, size_t first, const struct thread_look *look) {
    size_t left = target->thread_count - first;
    if (!has_gil(target))
        return STATUS_OK;
    return thread_group_read_requests(&target->group, target->threads + first,
                                      left < THREAD_GROUP_SIZE ? left : THREAD_GROUP_SIZE, look);
}

static enum status look_at_each(struct target *target, uint64_t now_ns) {
    struct thread_look look = {.options = &target->options,
                               .runtime = &target->runtime,
                               .counters = &target->counters,
                               .sink = target->sink,
                               .gil_bytes = target->runtime.layout.gil.size,
                               .now_ns = now_ns};
    const struct interp *grouped = NULL;
    target->group.count = 0;
    TRY(target_settle_sharers(target));
    for (size_t i = 0; i < target->thread_count; i++) {
        if (i % THREAD_GROUP_SIZE == 0)
            TRY(read_requests(target, i, &look));
        look.interp = interp_of(target, target->threads[i]);
        if (look.interp == NULL || !target_thread_is_looked_at(target->threads[i]))
            continue;
        enum status status = target->options.mode == SAMPLING_WAIT
                                 ? target_thread_look_waiting(target->threads[i], &look)
                                 : look_at_thread(target, &look, target->threads[i], &grouped);
        if (status == STATUS_NO_PROCESS)
            target->list_stale = target->threads[i]->gone = true;
        else
            TRY(status);
    }
    return finish_group(target, &look, grouped);
}

static enum status look_at_threads(struct target *target, uint64_t now_ns) {
    const struct sleepers_scene scene = {.runtime = &target->runtime,
                                         .process = target->process,
                                         .interps = target->interps,
                                         .interp_count = target->interp_count,
                                         .threads = target->threads,
                                         .thread_count = target->thread_count,
                                         .now_ns = now_ns};
    sleepers_begin(&target->sleepers, &scene);
    TRY(look_at_each(target, now_ns));
    sleepers_end(&target->sleepers, &scene);
    return STATUS_OK;
}

/* A stopped thread tells nothing of what it was doing in the kernel. */
static enum status read_threads_before_pause(struct target *target, uint64_t now_ns) {
    for (size_t i = 0; i < target->thread_count; i++) {
        struct target_thread *thread = target->threads[i];
        enum status status =
            target_thread_is_looked_at(thread) ? target_thread_read_before_pause(thread, now_ns) : STATUS_OK;
        if (status == STATUS_NO_PROCESS)
            target->list_stale = thread->gone = true;
        else
            TRY(status);
    }
    return STATUS_OK;
}

/* Who holds the GIL and who collects garbage is to be of the same instant as the stacks. */
static enum status look_while_paused(struct target *target, uint64_t now_ns) {
    enum status status = target_read_interps(target);
    if (status == STATUS_OK)
        return look_at_each(target, now_ns);
    /* Gone or becoming another program: the next look finds out. */
    target->interps_read_ns = 0;
    return status == STATUS_FAILED ? status : STATUS_OK;
}

static enum status look_blocking(struct target *target, uint64_t now_ns) {
    struct error ignored = {0};
    TRY(read_threads_before_pause(target, now_ns));
    enum status status = process_pause(target->process, &ignored);
    if (status == STATUS_NO_PROCESS)
        return reopen(target, now_ns);
    if (status != STATUS_OK) {
        target->counters.errors++;
        return STATUS_OK;
    }
    status = look_while_paused(target, now_ns);
    process_resume(target->process);
    return status;
}

/* How long a thread has slept up to here is told, or is not, before that changes. When the agent is gone, or not there
 * yet, it stays as it was. */
static enum status note_pause(struct target *target) {
    const struct sampled_process *inside = target->sampled.inside;
    if (inside == NULL || inside->paused == target->sampled.paused)
        return STATUS_OK;
    for (size_t i = 0; i < target->thread_count; i++)
        TRY(target_thread_end_sleep(target->threads[i], target->sink, &target->counters));
    target->sampled.paused = inside->paused;
    return STATUS_OK;
}

/* The dynamic linker has loaded the agent before there is a thread of Python's, or will not: what a short process uses
 * need not wait for a region that never comes. Asked anew when an agent is gone: it may have been one of the program
 * before an exec, or of a fork that became this program. */
static void look_for_agent(struct target *target) {
    struct sampled_process *sampled = &target->sampled;
    remote_addr ignored = 0;
    if (target->options.mode != SAMPLING_WAIT || sampled->company != SAMPLE_COMPANY_UNKNOWN || sampled->asked ||
        target->thread_count == 0)
        return;
    bool lacks = process_lacks_library(target->process, WIRE_AGENT_LIBRARY);
    /* What was asked is to be what has these threads, and not another program by now. */
    if (interp_first(&target->runtime, &ignored) != STATUS_OK ||
        process_exec_count(target->process) != target->exec_count)
        return;
    sampled->asked = true;
    if (lacks)
        sampled->company = SAMPLE_COMPANY_NONE;
}

enum status target_look(struct target *target, uint64_t now_ns) {
    TRY(note_pause(target));
    /* Objects die, and others take their places: what a look reads of them is of its own time. */
    memory_pages_clear(&target->pages);
    target->budget = look_budget;
    TRY(refresh(target, now_ns));
    if (target->lost)
        return STATUS_OK;
    look_for_agent(target);
    return target->options.blocking ? look_blocking(target, now_ns) : look_at_threads(target, now_ns);
}
