#include "sampler/look.h"

#include "base/array.h"
#include "base/memory_pages.h"
#include "sampler/attach_runtime.h"
#include "sampler/locate.h"
#include "sampler/look_python.h"
#include "sampler/native_ids.h"

#include <stdlib.h>
#include <string.h>

/* What one look may cost. A thousand threads of ten thousand frames each take a third of it on the versions that need
 * most (one read a frame, and one to check it). */
static const struct budget look_budget = {.reads_left = UINT64_C(1) << 26, .bytes_left = UINT64_C(1) << 35};

/* What is alive during one look only. */
struct looker {
    struct process *process;
    const struct look_options *options;
    struct look *look;
    struct memory_pages pages;
    struct budget budget;
    struct memory_meter live;
    struct memory_meter objects;
    struct runtime runtime;
    struct system_threads system;
    struct native_ids native_ids;
};

enum status look_add_thread(struct look *look, struct look_thread **thread) {
    TRY(array_reserve((void **)&look->threads, &look->thread_capacity, look->thread_count + 1,
                      sizeof look->threads[0]));
    *thread = &look->threads[look->thread_count++];
    **thread = (struct look_thread){0};
    return STATUS_OK;
}

/* From 3.15 on a thread says that it wants the GIL. Before, it is seen in a futex of the GIL's: not in the instants
 * between two spans of waiting, 5 ms each. */
static bool waits_for_gil(const struct looker *looker, const struct interp *interp, const struct thread_state *state,
                          const struct system_thread *system) {
    if (layout_has(looker->runtime.layout.thread.gil_requested))
        return state->gil_requested;
    return interp->gil != 0 && system != NULL && system->futex_address >= interp->gil &&
           system->futex_address < interp->gil + looker->runtime.layout.gil.size;
}

/* What the system knows of a thread of CPython's. */
static enum status describe_thread(void *context, const struct interp *interp, const struct thread_state *state,
                                   const struct thread_name *name, struct look_thread *thread) {
    struct looker *looker = context;
    const struct system_thread *system = native_ids_claim(&looker->native_ids, state, name);
    if (system != NULL) {
        thread->native_id = (uint64_t)system->own_tid;
        thread->state = system->state;
    }
    if (thread->gil == GIL_NONE && waits_for_gil(looker, interp, state, system))
        thread->gil = GIL_WAITING;
    bool is_main = thread->native_id == (uint64_t)process_own_pid(looker->process);
    if (name != NULL && !is_main && !thread_name_is_of(name, thread->native_id))
        thread->name = NULL;
    if (thread->name == NULL && is_main)
        thread->name = "MainThread";
    else if (thread->name == NULL && system != NULL)
        thread->name = arena_copy_text(&looker->look->arena, system->comm, strlen(system->comm));
    return STATUS_OK;
}

/* While nothing moves, what was read stays true. */
static void forget_objects(void *context) {
    struct looker *looker = context;
    if (!looker->options->blocking)
        memory_pages_clear(&looker->pages);
}

/* Threads that CPython does not know: those of native libraries. */
static enum status add_native_threads(struct looker *looker) {
    for (size_t i = 0; i < looker->system.count; i++) {
        const struct system_thread *system = &looker->system.items[i];
        struct look_thread *thread = NULL;
        if (native_ids_is_claimed(&looker->native_ids, i))
            continue;
        TRY(look_add_thread(looker->look, &thread));
        thread->native_id = (uint64_t)system->own_tid;
        thread->state = system->state;
        thread->name = arena_copy_text(&looker->look->arena, system->comm, strlen(system->comm));
        thread->consistent = true;
        if (thread->name == NULL)
            return STATUS_FAILED;
    }
    return STATUS_OK;
}

struct ranked_thread {
    struct look_thread thread;
    size_t rank;
};

/* The main interpreter first; within each as they were. */
static int compare_threads(const void *left, const void *right) {
    const struct ranked_thread *a = left, *b = right;
    if (a->thread.has_python != b->thread.has_python)
        return a->thread.has_python ? -1 : 1;
    if (a->thread.interpreter != b->thread.interpreter)
        return a->thread.interpreter < b->thread.interpreter ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

static enum status sort_threads(struct look *look) {
    struct ranked_thread *ranked = malloc(look->thread_count * sizeof ranked[0] + 1);
    if (ranked == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < look->thread_count; i++)
        ranked[i] = (struct ranked_thread){look->threads[i], i};
    qsort(ranked, look->thread_count, sizeof ranked[0], compare_threads);
    for (size_t i = 0; i < look->thread_count; i++)
        look->threads[i] = ranked[i].thread;
    free(ranked);
    return STATUS_OK;
}

/* Where asyncio describes itself; 0 when nobody asks or the program has not imported it. */
static remote_addr find_asyncio(struct looker *looker) {
    struct runtime_symbols symbols = {.runtime = looker->runtime.address};
    remote_addr address = 0;
    if (!looker->options->with_tasks || locate_asyncio_debug(looker->process, &symbols, &address) != STATUS_OK)
        return 0;
    return address;
}

static enum status open_target(struct looker *looker, struct error *error) {
    TRY(attach_runtime(looker->process, &looker->objects.memory, &looker->runtime, error));
    looker->runtime.live = &looker->live.memory;
    /* Before any stop: a stopped thread no longer says whether it was running. */
    bool tells_itself = layout_has(looker->runtime.layout.thread.gil_requested);
    return process_read_threads(looker->process, !tells_itself, &looker->system, error);
}

static enum status look_inside(struct looker *looker) {
    TRY(native_ids_init(&looker->native_ids, looker->process, &looker->system));
    const struct look_system system = {describe_thread, forget_objects, looker, find_asyncio(looker)};
    TRY(look_python_take(&looker->runtime, looker->options, &looker->budget, &system, looker->look));
    TRY(add_native_threads(looker));
    return sort_threads(looker->look);
}

static void release(struct looker *looker) {
    native_ids_release(&looker->native_ids);
    system_threads_release(&looker->system);
    memory_pages_release(&looker->pages);
}

/* Whatever was found wrong in a process that has ended meanwhile is for that reason. */
static enum status explain_failure(const struct process *process, enum status status, struct error *error) {
    int pid = (int)process_pid(process);
    if (status != STATUS_NO_PROCESS && !process_alive(process)) {
        *error = (struct error){0};
        return error_set(error, STATUS_NO_PROCESS, "process %d ended while it was being read", pid);
    }
    if (error->status != STATUS_OK)
        return status;
    return error_set(error, status, "cannot read process %d: %s", pid, status_name(status));
}

enum status look_take(struct process *process, const struct look_options *options, struct look *look,
                      struct error *error) {
    struct looker looker = {.process = process, .options = options, .look = look, .budget = look_budget};
    *look = (struct look){.pid = process_pid(process), .command = process_command(process)};
    memory_pages_init(&looker.pages, process_memory(process));
    memory_meter_init(&looker.live, process_memory(process), &looker.budget);
    memory_meter_init(&looker.objects, &looker.pages.memory, &looker.budget);
    enum status status = open_target(&looker, error);
    if (status == STATUS_OK && options->blocking)
        status = process_pause(process, error);
    /* What was read on the way is not of the same instant. */
    memory_pages_clear(&looker.pages);
    if (status == STATUS_OK) {
        status = look_inside(&looker);
        if (options->blocking)
            process_resume(process);
    }
    release(&looker);
    return status == STATUS_OK ? STATUS_OK : explain_failure(process, status, error);
}

void look_free(struct look *look) {
    free(look->threads);
    free(look->interpreters);
    free(look->tasks);
    arena_release(&look->arena);
    arena_release(&look->code_arena);
    *look = (struct look){0};
}
