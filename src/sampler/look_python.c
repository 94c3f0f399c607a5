#include "sampler/look_python.h"

#include "base/array.h"
#include "base/map.h"
#include "cpython/locals.h"
#include "cpython/repr.h"
#include "cpython/state_list.h"
#include "sampler/look_async.h"
#include "unwind/python_stack.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* How often a running thread's stack is read anew until it agrees with itself. */
    MAX_ATTEMPTS = 20,
    TYPE_NAME_LIMIT_BYTES = 4096,
    /* A character is at most 12 bytes long: a surrogate pair as two escapes. */
    BYTES_PER_CHARACTER = 12,
    /* Of all threads together. A thousand threads of ten thousand frames each are ten million. */
    MAX_FRAMES = 1 << 24,
    MAX_LOCALS_BYTES = 1 << 30,
};

/* A last line of defence, well beyond what the two above add up to. */
static const size_t MAX_LOOK_BYTES = (size_t)1 << 32;

/* What is alive while the interpreters are read. */
struct taker {
    struct runtime *runtime;
    const struct look_options *options;
    const struct look_system *system;
    struct look *look;
    struct budget *budget;
    struct budget reserve; /* what locals must leave of the budget: half */
    struct code_cache codes;
    struct stack_reader stacks;
    struct python_stack stack;
    struct state_list interp_list;
    struct state_list thread_list;
    struct map seen;       /* interpreters and threads: what two lists claim to have is of the first */
    struct map thread_ids; /* of this interpreter: whose state has which */
    size_t frame_count;
    struct interp interp; /* the one being read */
    struct thread_names names;
    size_t interpreter_capacity;
};

static enum status append_interpreter(struct taker *taker) {
    struct look *look = taker->look;
    TRY(array_reserve((void **)&look->interpreters, &taker->interpreter_capacity, look->interpreter_count + 1,
                      sizeof look->interpreters[0]));
    const struct interp *interp = &taker->interp;
    look->interpreters[look->interpreter_count++] =
        (struct look_interpreter){interp->id, interp->gil_enabled, interp->collecting};
    return STATUS_OK;
}

/* The locals of one frame, gathered before their number is known. */
struct locals_collector {
    struct taker *taker;
    struct look_local *items;
    size_t count;
    size_t capacity;
};

static bool affords_locals(const struct taker *taker) {
    const struct budget *budget = taker->budget;
    return taker->look->arena.size_bytes < MAX_LOCALS_BYTES &&
           (budget == NULL || (!budget->exhausted && budget->reads_left > taker->reserve.reads_left &&
                               budget->bytes_left > taker->reserve.bytes_left));
}

static enum status text_of(struct taker *taker, remote_addr value, bool type_name, const char **text) {
    size_t limit = taker->options->locals_chars * BYTES_PER_CHARACTER;
    struct buffer buffer;
    buffer_init(&buffer, type_name ? TYPE_NAME_LIMIT_BYTES : limit + TYPE_NAME_LIMIT_BYTES);
    enum status status = type_name ? repr_append_type_name(taker->runtime, value, &buffer)
                                   : repr_append(taker->runtime, value, taker->options->locals_chars, &buffer);
    if (status == STATUS_OK || status == STATUS_LIMIT) {
        *text = arena_copy_text(&taker->look->arena, buffer_text(&buffer), buffer.size_bytes);
        status = *text != NULL ? STATUS_OK : STATUS_FAILED;
    }
    buffer_release(&buffer);
    return status;
}

static enum status collect_local(void *context, const char *name, remote_addr value, bool argument) {
    struct locals_collector *collector = context;
    struct taker *taker = collector->taker;
    if (!affords_locals(taker))
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&collector->items, &collector->capacity, collector->count + 1,
                      sizeof collector->items[0]));
    struct look_local local = {.argument = argument, .type = "?", .value = "<unreadable>"};
    local.name = arena_copy_text(&taker->look->arena, name, strlen(name));
    if (local.name == NULL || text_of(taker, value, true, &local.type) == STATUS_FAILED ||
        text_of(taker, value, false, &local.value) == STATUS_FAILED)
        return STATUS_FAILED;
    collector->items[collector->count++] = local;
    return STATUS_OK;
}

static enum status read_locals(struct taker *taker, const struct stack_frame *from, struct look_frame *to) {
    struct locals_collector collector = {.taker = taker};
    to->locals_status = STATUS_LIMIT;
    if (affords_locals(taker))
        to->locals_status = locals_visit(taker->runtime, stack_reader_memory(&taker->stacks), &from->frame, from->code,
                                         collect_local, &collector);
    struct look_local *items = arena_take(&taker->look->arena, collector.count * sizeof items[0] + 1);
    if (items != NULL && collector.count > 0)
        memcpy(items, collector.items, collector.count * sizeof items[0]);
    free(collector.items);
    to->locals = items;
    to->local_count = collector.count;
    return items == NULL || to->locals_status == STATUS_FAILED ? STATUS_FAILED : STATUS_OK;
}

static enum status fill_frame(struct taker *taker, const struct stack_frame *from, struct look_frame *to) {
    *to = (struct look_frame){.status = from->status, .address = from->frame.address, .position = from->position};
    if (from->status != STATUS_OK)
        return STATUS_OK;
    /* The texts belong to the code cache, whose arena the look takes over at the end. */
    to->function = from->code->name;
    to->qualname = from->code->qualname;
    to->file = from->code->filename;
    to->collecting = taker->interp.gc_frame != 0 && taker->interp.gc_frame == from->frame.address;
    return taker->options->with_locals ? read_locals(taker, from, to) : STATUS_OK;
}

static enum status fill_frames(struct taker *taker, struct look_thread *thread) {
    const struct python_stack *stack = &taker->stack;
    size_t room = MAX_FRAMES - taker->frame_count;
    size_t count = stack->count < room ? stack->count : room;
    thread->frames = arena_take(&taker->look->arena, count * sizeof thread->frames[0] + 1);
    if (thread->frames == NULL)
        return STATUS_FAILED;
    thread->consistent = stack->consistent;
    thread->cut = stack->cut || count < stack->count;
    taker->frame_count += count;
    for (size_t i = 0; i < count; i++) {
        TRY(fill_frame(taker, &stack->frames[i], &thread->frames[i]));
        thread->collecting |= thread->frames[i].collecting;
        thread->frame_count++;
    }
    return STATUS_OK;
}

static enum status describe_thread(struct taker *taker, const struct thread_state *state, struct look_thread *thread) {
    const struct interp *interp = &taker->interp;
    const struct thread_name *name = thread_names_find(&taker->names, state->thread_id);
    thread->has_python = true;
    thread->thread_id = state->thread_id;
    thread->native_id = state->native_thread_id;
    thread->interpreter = interp->id;
    thread->gil = interp->gil_holder == state->address ? GIL_HELD : GIL_NONE;
    thread->name = name != NULL ? name->name : NULL;
    /* Before 3.15 a collection does not say where it runs; with a GIL it is the thread that holds it. */
    thread->collecting = interp->collecting && interp->gc_frame == 0 && thread->gil == GIL_HELD;
    if (taker->system == NULL)
        return STATUS_OK;
    return taker->system->describe(taker->system->context, interp, state, name, thread);
}

static void forget_objects(const struct taker *taker) {
    if (taker->options->with_locals && taker->system != NULL)
        taker->system->forget_objects(taker->system->context);
}

static enum status take_thread(struct taker *taker, struct thread_state *state) {
    struct look_thread *thread = NULL;
    TRY(look_add_thread(taker->look, &thread));
    TRY(describe_thread(taker, state, thread));
    enum status status = python_stack_read(&taker->stacks, state, MAX_ATTEMPTS, &taker->stack);
    bool doubtful = taker->stack.count == 0 || !taker->stack.consistent;
    if (status == STATUS_OK && doubtful &&
        !state_list_still_has_thread(taker->runtime, taker->interp.address, state->address))
        status = STATUS_TORN;
    if (status != STATUS_OK && status != STATUS_FAILED) {
        /* The thread ended meanwhile. */
        taker->look->thread_count--;
        return status == STATUS_NO_PROCESS ? status : STATUS_OK;
    }
    TRY(status);
    forget_objects(taker);
    return fill_frames(taker, thread);
}

/* CPython's list begins with the newest thread. */
static void oldest_first(struct look_thread *threads, size_t count) {
    for (size_t i = 0; i < count / 2; i++) {
        struct look_thread swapped = threads[i];
        threads[i] = threads[count - 1 - i];
        threads[count - 1 - i] = swapped;
    }
}

/* *first: whether this interpreter or thread was not met before. */
static enum status meet(struct taker *taker, remote_addr address, bool *first) {
    uint64_t ignored = 0;
    *first = !map_get(&taker->seen, address, &ignored);
    return *first ? map_set(&taker->seen, address, 1) : STATUS_OK;
}

/* The thread that has an id is the oldest that claims to have it. */
static enum status note_thread_ids(struct taker *taker) {
    const struct state_list *list = &taker->thread_list;
    map_clear(&taker->thread_ids);
    for (size_t i = 0; i < list->count; i++) {
        struct thread_state state;
        enum status status = thread_state_read(taker->runtime, list->items[i], &state);
        if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
            return status;
        if (status == STATUS_OK && state.thread_id != 0)
            TRY(map_set(&taker->thread_ids, state.thread_id, state.address));
    }
    return STATUS_OK;
}

/* A state that is made for a thread which has not begun: up to 3.11 it has the ids of the thread that makes it
 * (Modules/_threadmodule.c, Python/pystate.c), later none. */
static bool is_unborn(const struct taker *taker, const struct thread_state *state) {
    uint64_t owner = 0;
    if (state->thread_id == 0)
        return true;
    return state->frame == 0 && map_get(&taker->thread_ids, state->thread_id, &owner) && owner != state->address;
}

static enum status take_listed_thread(struct taker *taker, remote_addr address) {
    struct thread_state state;
    bool is_new = false;
    TRY(meet(taker, address, &is_new));
    if (!is_new)
        return STATUS_OK;
    enum status status = thread_state_read(taker->runtime, address, &state);
    if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
        return status;
    if (status != STATUS_OK || state.interp != taker->interp.address || is_unborn(taker, &state))
        return STATUS_OK;
    return take_thread(taker, &state);
}

/* The list was read to its end first: reading a stack takes longer than some threads live. The newest are looked at
 * first, for they are mostly those. */
static enum status take_threads(struct taker *taker) {
    struct state_list *list = &taker->thread_list;
    TRY(state_list_read_threads(taker->runtime, taker->interp.address, list));
    taker->look->threads_complete &= list->complete;
    TRY(note_thread_ids(taker));
    for (size_t i = 0; i < list->count && taker->look->thread_count < MAX_THREADS; i++)
        TRY(take_listed_thread(taker, list->items[i]));
    return STATUS_OK;
}

static enum status take_interpreter(struct taker *taker) {
    size_t first = taker->look->thread_count;
    TRY(append_interpreter(taker));
    TRY(thread_names_read(taker->runtime, &taker->interp, NULL, &taker->look->arena, &taker->names));
    TRY(take_threads(taker));
    /* The first interpreter found may have none yet. */
    if (taker->look->thread_count > first)
        oldest_first(taker->look->threads + first, taker->look->thread_count - first);
    return STATUS_OK;
}

static enum status take_interpreters(struct taker *taker) {
    struct state_list *list = &taker->interp_list;
    TRY(state_list_read_interps(taker->runtime, list));
    taker->look->threads_complete = list->complete;
    for (size_t i = 0; i < list->count; i++) {
        bool is_new = false;
        TRY(meet(taker, list->items[i], &is_new));
        enum status status = is_new ? interp_read(taker->runtime, list->items[i], &taker->interp) : STATUS_NOT_FOUND;
        if (status == STATUS_FAILED || status == STATUS_NO_PROCESS)
            return status;
        if (status == STATUS_OK)
            TRY(take_interpreter(taker));
    }
    return STATUS_OK;
}

static enum status fill_task_frame(void *context, const struct stack_frame *from, struct look_frame *to) {
    forget_objects(context);
    return fill_frame(context, from, to);
}

static enum status take_tasks(struct taker *taker) {
    struct look_async async = {
        .table = taker->system != NULL ? taker->system->asyncio_debug : 0,
        .stacks = &taker->stacks,
        .look = taker->look,
        .fill = fill_task_frame,
        .context = taker,
    };
    return taker->options->with_tasks ? look_async_read(&async) : STATUS_OK;
}

enum status look_python_take(struct runtime *runtime, const struct look_options *options, struct budget *budget,
                             const struct look_system *system, struct look *look) {
    struct taker taker = {
        .runtime = runtime, .options = options, .system = system, .look = look, .budget = budget, .reserve = {0}};
    if (budget != NULL)
        taker.reserve = (struct budget){.reads_left = budget->reads_left / 2, .bytes_left = budget->bytes_left / 2};
    look->version = runtime->version;
    look->free_threaded = runtime->layout.free_threaded;
    look->newer_than_known = runtime->layout.newer_than_known;
    look->arena.limit_bytes = MAX_LOOK_BYTES;
    code_cache_init(&taker.codes, runtime);
    stack_reader_init(&taker.stacks, runtime, &taker.codes);
    stack_reader_limit(&taker.stacks, budget);
    enum status status = take_interpreters(&taker);
    if (status == STATUS_OK)
        status = take_tasks(&taker);
    look->exhausted = budget != NULL && budget->exhausted;
    /* The names in the look point into the code cache's arena. */
    look->code_arena = taker.codes.arena;
    taker.codes.arena = (struct arena){0};
    code_cache_release(&taker.codes);
    stack_reader_release(&taker.stacks);
    python_stack_release(&taker.stack);
    map_release(&taker.seen);
    map_release(&taker.thread_ids);
    state_list_release(&taker.interp_list);
    state_list_release(&taker.thread_list);
    return status;
}
