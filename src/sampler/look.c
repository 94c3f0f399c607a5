#include "sampler/look.h"

#include "base/memory_pages.h"
#include "cpython/locals.h"
#include "cpython/repr.h"
#include "cpython/thread_names.h"
#include "sampler/attach_runtime.h"
#include "sampler/native_ids.h"
#include "unwind/python_stack.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* How often a running thread's stack is read anew until it agrees with itself. */
    MAX_ATTEMPTS = 20,
    TYPE_NAME_LIMIT_BYTES = 4096,
    /* A character is at most 12 bytes long: a surrogate pair as two escapes. */
    BYTES_PER_CHARACTER = 12,
};

/* What is alive during one look only. */
struct looker {
    struct process *process;
    const struct look_options *options;
    struct look *look;
    struct memory_pages pages;
    struct runtime runtime;
    struct code_cache codes;
    struct stack_reader stacks;
    struct python_stack stack;
    struct system_threads system;
    struct native_ids native_ids;
    struct interp interp; /* the one being read */
    struct thread_names names;
    size_t thread_capacity;
    size_t interpreter_capacity;
};

static enum status append_thread(struct looker *looker, struct look_thread **thread) {
    struct look *look = looker->look;
    if (look->thread_count == looker->thread_capacity) {
        size_t capacity = looker->thread_capacity > 0 ? looker->thread_capacity * 2 : 16;
        struct look_thread *threads = realloc(look->threads, capacity * sizeof threads[0]);
        if (threads == NULL)
            return STATUS_FAILED;
        look->threads = threads;
        looker->thread_capacity = capacity;
    }
    *thread = &look->threads[look->thread_count++];
    **thread = (struct look_thread){0};
    return STATUS_OK;
}

static enum status append_interpreter(struct looker *looker) {
    struct look *look = looker->look;
    if (look->interpreter_count == looker->interpreter_capacity) {
        size_t capacity = looker->interpreter_capacity > 0 ? looker->interpreter_capacity * 2 : 4;
        struct look_interpreter *items = realloc(look->interpreters, capacity * sizeof items[0]);
        if (items == NULL)
            return STATUS_FAILED;
        look->interpreters = items;
        looker->interpreter_capacity = capacity;
    }
    const struct interp *interp = &looker->interp;
    look->interpreters[look->interpreter_count++] =
        (struct look_interpreter){interp->id, interp->gil_enabled, interp->collecting};
    return STATUS_OK;
}

/* The locals of one frame, gathered before their number is known. */
struct locals_collector {
    struct looker *looker;
    struct look_local *items;
    size_t count;
    size_t capacity;
};

static enum status text_of(struct looker *looker, remote_addr value, bool type_name, const char **text) {
    size_t limit = looker->options->locals_chars * BYTES_PER_CHARACTER;
    struct buffer buffer;
    buffer_init(&buffer, type_name ? TYPE_NAME_LIMIT_BYTES : limit + TYPE_NAME_LIMIT_BYTES);
    enum status status = type_name ? repr_append_type_name(&looker->runtime, value, &buffer)
                                   : repr_append(&looker->runtime, value, looker->options->locals_chars, &buffer);
    if (status == STATUS_OK || status == STATUS_LIMIT) {
        *text = arena_copy_text(&looker->look->arena, buffer_text(&buffer), buffer.size_bytes);
        status = *text != NULL ? STATUS_OK : STATUS_FAILED;
    }
    buffer_release(&buffer);
    return status;
}

static enum status collect_local(void *context, const char *name, remote_addr value, bool argument) {
    struct locals_collector *collector = context;
    if (collector->count == collector->capacity) {
        size_t capacity = collector->capacity > 0 ? collector->capacity * 2 : 16;
        struct look_local *items = realloc(collector->items, capacity * sizeof items[0]);
        if (items == NULL)
            return STATUS_FAILED;
        collector->items = items;
        collector->capacity = capacity;
    }
    struct look_local local = {.argument = argument, .type = "?", .value = "<unreadable>"};
    local.name = arena_copy_text(&collector->looker->look->arena, name, strlen(name));
    if (local.name == NULL || text_of(collector->looker, value, true, &local.type) == STATUS_FAILED ||
        text_of(collector->looker, value, false, &local.value) == STATUS_FAILED)
        return STATUS_FAILED;
    collector->items[collector->count++] = local;
    return STATUS_OK;
}

static enum status read_locals(struct looker *looker, const struct stack_frame *from, struct look_frame *to) {
    struct locals_collector collector = {.looker = looker};
    to->locals_status = locals_visit(&looker->runtime, stack_reader_memory(&looker->stacks), &from->frame, from->code,
                                     collect_local, &collector);
    struct look_local *items = arena_take(&looker->look->arena, collector.count * sizeof items[0] + 1);
    if (items != NULL && collector.count > 0)
        memcpy(items, collector.items, collector.count * sizeof items[0]);
    free(collector.items);
    to->locals = items;
    to->local_count = collector.count;
    return items == NULL || to->locals_status == STATUS_FAILED ? STATUS_FAILED : STATUS_OK;
}

static enum status fill_frame(struct looker *looker, const struct stack_frame *from, struct look_frame *to) {
    *to = (struct look_frame){.status = from->status, .position = from->position};
    if (from->status != STATUS_OK)
        return STATUS_OK;
    /* The texts belong to the code cache, whose arena the look takes over at the end. */
    to->function = from->code->name;
    to->qualname = from->code->qualname;
    to->file = from->code->filename;
    to->collecting = looker->interp.gc_frame != 0 && looker->interp.gc_frame == from->frame.address;
    return looker->options->with_locals ? read_locals(looker, from, to) : STATUS_OK;
}

static enum status fill_frames(struct looker *looker, struct look_thread *thread) {
    const struct python_stack *stack = &looker->stack;
    thread->frames = arena_take(&looker->look->arena, stack->count * sizeof thread->frames[0] + 1);
    if (thread->frames == NULL)
        return STATUS_FAILED;
    thread->consistent = stack->consistent;
    thread->cut = stack->cut;
    for (size_t i = 0; i < stack->count; i++) {
        TRY(fill_frame(looker, &stack->frames[i], &thread->frames[i]));
        thread->collecting |= thread->frames[i].collecting;
        thread->frame_count++;
    }
    return STATUS_OK;
}

/* From 3.15 on a thread says that it wants the GIL. Before, it is seen in a futex of the GIL's: not in the instants
 * between two spans of waiting, 5 ms each. */
static bool waits_for_gil(const struct looker *looker, const struct thread_state *state,
                          const struct system_thread *system) {
    const struct interp *interp = &looker->interp;
    if (layout_has(looker->runtime.layout.thread.gil_requested))
        return state->gil_requested;
    return interp->gil != 0 && system != NULL && system->futex_address >= interp->gil &&
           system->futex_address < interp->gil + looker->runtime.layout.gil.size;
}

static void fill_states(struct looker *looker, const struct thread_state *state, struct look_thread *thread) {
    const struct interp *interp = &looker->interp;
    const struct thread_name *name = thread_names_find(&looker->names, state->thread_id);
    const struct system_thread *system = native_ids_claim(&looker->native_ids, state, name);
    thread->has_python = true;
    thread->thread_id = state->thread_id;
    thread->interpreter = interp->id;
    thread->native_id = system != NULL ? (uint64_t)system->own_tid : state->native_thread_id;
    thread->state = system != NULL ? system->state : THREAD_IDLE;
    if (interp->gil_holder == state->address)
        thread->gil = GIL_HELD;
    else if (waits_for_gil(looker, state, system))
        thread->gil = GIL_WAITING;
    if (name != NULL) {
        thread->name = name->name;
    } else if (thread->native_id == (uint64_t)process_own_pid(looker->process)) {
        thread->name = "MainThread";
    } else if (system != NULL) {
        thread->name = arena_copy_text(&looker->look->arena, system->comm, strlen(system->comm));
    }
    /* Before 3.15 a collection does not say where it runs; with a GIL it is the thread that holds it. */
    thread->collecting = interp->collecting && interp->gc_frame == 0 && thread->gil == GIL_HELD;
}

static enum status look_at_thread(struct looker *looker, struct thread_state *state) {
    struct look_thread *thread = NULL;
    TRY(append_thread(looker, &thread));
    fill_states(looker, state, thread);
    enum status status = python_stack_read(&looker->stacks, state, MAX_ATTEMPTS, &looker->stack);
    if (status != STATUS_OK && status != STATUS_FAILED) {
        /* The thread ended meanwhile. */
        looker->look->thread_count--;
        return status == STATUS_NO_PROCESS ? status : STATUS_OK;
    }
    TRY(status);
    return fill_frames(looker, thread);
}

/* CPython's list begins with the newest thread. */
static void oldest_first(struct look_thread *threads, size_t count) {
    for (size_t i = 0; i < count / 2; i++) {
        struct look_thread swapped = threads[i];
        threads[i] = threads[count - 1 - i];
        threads[count - 1 - i] = swapped;
    }
}

static enum status look_at_interpreter(struct looker *looker) {
    size_t first = looker->look->thread_count;
    TRY(append_interpreter(looker));
    TRY(thread_names_read(&looker->runtime, &looker->interp, &looker->look->arena, &looker->names));
    remote_addr address = looker->interp.threads_head;
    for (size_t i = 0; address != 0 && i < MAX_THREADS; i++) {
        struct thread_state state;
        /* A list that breaks under our hands costs the threads behind the break. */
        if (thread_state_read(&looker->runtime, address, &state) != STATUS_OK || state.interp != looker->interp.address)
            break;
        address = state.next;
        TRY(look_at_thread(looker, &state));
    }
    oldest_first(looker->look->threads + first, looker->look->thread_count - first);
    return STATUS_OK;
}

static enum status look_at_interpreters(struct looker *looker) {
    remote_addr address = 0;
    TRY(interp_first(&looker->runtime, &address));
    for (size_t i = 0; address != 0 && i < MAX_INTERPRETERS; i++) {
        if (interp_read(&looker->runtime, address, &looker->interp) != STATUS_OK)
            break;
        address = looker->interp.next;
        TRY(look_at_interpreter(looker));
    }
    return STATUS_OK;
}

/* Threads that CPython does not know: those of native libraries. */
static enum status add_native_threads(struct looker *looker) {
    for (size_t i = 0; i < looker->system.count; i++) {
        const struct system_thread *system = &looker->system.items[i];
        struct look_thread *thread = NULL;
        if (native_ids_is_claimed(&looker->native_ids, i))
            continue;
        TRY(append_thread(looker, &thread));
        thread->native_id = (uint64_t)system->own_tid;
        thread->state = system->state;
        thread->name = arena_copy_text(&looker->look->arena, system->comm, strlen(system->comm));
        thread->consistent = true;
        if (thread->name == NULL)
            return STATUS_FAILED;
    }
    return STATUS_OK;
}

/* The main interpreter first; a stable order within each. */
static int compare_threads(const void *left, const void *right) {
    const struct look_thread *a = left, *b = right;
    if (a->has_python != b->has_python)
        return a->has_python ? -1 : 1;
    if (a->interpreter != b->interpreter)
        return a->interpreter < b->interpreter ? -1 : 1;
    return 0;
}

static void sort_threads(struct look *look) {
    /* Insertion sort: stable, and the list is nearly in order already. */
    for (size_t i = 1; i < look->thread_count; i++)
        for (size_t j = i; j > 0 && compare_threads(&look->threads[j - 1], &look->threads[j]) > 0; j--) {
            struct look_thread swapped = look->threads[j];
            look->threads[j] = look->threads[j - 1];
            look->threads[j - 1] = swapped;
        }
}

static enum status look_inside(struct looker *looker, struct error *error) {
    struct look *look = looker->look;
    TRY(attach_runtime(looker->process, &looker->pages.memory, &looker->runtime, error));
    look->version = looker->runtime.version;
    look->free_threaded = looker->runtime.layout.free_threaded;
    look->newer_than_known = looker->runtime.layout.newer_than_known;
    TRY(native_ids_init(&looker->native_ids, looker->process, &looker->system));
    code_cache_init(&looker->codes, &looker->runtime);
    stack_reader_init(&looker->stacks, &looker->runtime, &looker->codes);
    TRY(look_at_interpreters(looker));
    TRY(add_native_threads(looker));
    sort_threads(look);
    return STATUS_OK;
}

static void release(struct looker *looker) {
    /* The names in the look point into the code cache's arena. */
    looker->look->code_arena = looker->codes.arena;
    looker->codes.arena = (struct arena){0};
    code_cache_release(&looker->codes);
    stack_reader_release(&looker->stacks);
    python_stack_release(&looker->stack);
    native_ids_release(&looker->native_ids);
    system_threads_release(&looker->system);
    memory_pages_release(&looker->pages);
}

enum status look_take(struct process *process, const struct look_options *options, struct look *look,
                      struct error *error) {
    struct looker looker = {.process = process, .options = options, .look = look};
    *look = (struct look){.pid = process_pid(process), .command = process_command(process)};
    memory_pages_init(&looker.pages, process_memory(process));
    /* Before the stop: a stopped thread no longer says whether it was running. */
    enum status status = process_read_threads(process, true, &looker.system, error);
    if (status == STATUS_OK && options->blocking)
        status = process_pause(process, error);
    if (status == STATUS_OK) {
        status = look_inside(&looker, error);
        if (options->blocking)
            process_resume(process);
    }
    release(&looker);
    if (status != STATUS_OK && error->status == STATUS_OK)
        status = process_alive(process)
                     ? error_set(error, status, "cannot read process %d: %s", (int)look->pid, status_name(status))
                     : error_set(error, STATUS_NO_PROCESS, "process %d ended while it was being read", (int)look->pid);
    return status;
}

void look_free(struct look *look) {
    free(look->threads);
    free(look->interpreters);
    arena_release(&look->arena);
    arena_release(&look->code_arena);
    *look = (struct look){0};
}
