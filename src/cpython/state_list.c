#include "cpython/state_list.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* A list of some dozen states takes less time to walk than a thread to start or end. */
    MAX_ATTEMPTS = 20,
    /* Of all attempts together, save the last. */
    MAX_STEPS = 1 << 20,
};

/* One attempt. */
struct walk {
    struct runtime *runtime;
    struct state_list *list;
    remote_addr left_behind; /* an earlier state: who comes by there again goes round in a ring */
    bool strict;
};

typedef enum status walk_fn(struct walk *walk, remote_addr interp);

static enum status add(struct walk *walk, remote_addr address, size_t most) {
    struct state_list *list = walk->list;
    if (address == walk->left_behind)
        return STATUS_TORN;
    if (list->count == most)
        return STATUS_LIMIT;
    if ((list->count & (list->count - 1)) == 0)
        walk->left_behind = address;
    TRY(array_reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof list->items[0]));
    list->items[list->count++] = address;
    return STATUS_OK;
}

static enum status walk_interps(struct walk *walk, remote_addr interp) {
    const struct runtime *runtime = walk->runtime;
    remote_addr address = 0;
    (void)interp;
    TRY(interp_first(walk->runtime, &address));
    while (address != 0) {
        TRY(add(walk, address, MAX_INTERPRETERS));
        TRY(memory_read_u64(runtime->live, address + runtime->layout.interp.next, &address));
    }
    return STATUS_OK;
}

/* What was a thread state may be something else a moment later, or another's. Where the way back leads elsewhere than
 * where we came from, the list is being changed right there; in a process at rest it may stay so. */
static enum status walk_threads(struct walk *walk, remote_addr interp) {
    const struct runtime *runtime = walk->runtime;
    const struct layout_thread *fields = &runtime->layout.thread;
    remote_addr address = 0, came_from = 0;
    TRY(memory_read_u64(runtime->live, interp + runtime->layout.interp.threads_head, &address));
    while (address != 0) {
        remote_addr back = 0, next = 0, owner = 0;
        const struct memory_piece pieces[] = {{address + fields->prev, &back, sizeof back},
                                              {address + fields->next, &next, sizeof next},
                                              {address + fields->interp, &owner, sizeof owner}};
        TRY(memory_read_pieces(runtime->live, pieces, sizeof pieces / sizeof pieces[0]));
        if (owner != interp || (walk->strict && came_from != 0 && back != came_from))
            return STATUS_TORN;
        TRY(add(walk, address, MAX_THREADS));
        came_from = address;
        address = next;
    }
    return STATUS_OK;
}

static bool is_fatal(enum status status) {
    return status == STATUS_FAILED || status == STATUS_NO_PROCESS;
}

static void swap(struct state_list *left, struct state_list *right) {
    struct state_list kept = *left;
    *left = *right;
    *right = kept;
}

static bool same(const struct state_list *left, const struct state_list *right) {
    return left->count == right->count &&
           (left->count == 0 || memcmp(left->items, right->items, left->count * sizeof left->items[0]) == 0);
}

/* `twice`: a list whose states do not tell whose they are is believed when two walks agree. */
static enum status read_list(struct runtime *runtime, remote_addr interp, walk_fn *way, bool twice,
                             struct state_list *list) {
    struct state_list found = {0};
    enum status status = STATUS_OK;
    bool complete = false, ended = false;
    size_t steps = 0;
    list->count = 0;
    for (int i = 1; i <= MAX_ATTEMPTS && steps < MAX_STEPS && !complete && status != STATUS_LIMIT; i++) {
        struct walk walk = {.runtime = runtime, .list = &found, .strict = i < MAX_ATTEMPTS};
        found.count = 0;
        status = way(&walk, interp);
        if (is_fatal(status))
            break;
        steps += found.count;
        complete = status == STATUS_OK && (!twice || (ended && same(&found, list)));
        if (status == STATUS_OK || (!ended && found.count > list->count))
            swap(&found, list);
        ended |= status == STATUS_OK;
    }
    free(found.items);
    list->complete = complete;
    return is_fatal(status) ? status : STATUS_OK;
}

enum status state_list_read_interps(struct runtime *runtime, struct state_list *list) {
    return read_list(runtime, 0, walk_interps, true, list);
}

enum status state_list_read_threads(struct runtime *runtime, remote_addr interp, struct state_list *list) {
    return read_list(runtime, interp, walk_threads, false, list);
}

bool state_list_still_has_thread(struct runtime *runtime, remote_addr interp, remote_addr thread) {
    const struct layout *layout = &runtime->layout;
    /* A new thread may come before it between two reads. */
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        remote_addr back = 0, back_again = 0, forth = 0;
        if (memory_read_u64(runtime->live, thread + layout->thread.prev, &back) != STATUS_OK ||
            memory_read_u64(runtime->live,
                            back != 0 ? back + layout->thread.next : interp + layout->interp.threads_head,
                            &forth) != STATUS_OK ||
            memory_read_u64(runtime->live, thread + layout->thread.prev, &back_again) != STATUS_OK)
            return false;
        if (forth == thread || back == back_again)
            return forth == thread;
    }
    return false;
}

void state_list_release(struct state_list *list) {
    free(list->items);
    *list = (struct state_list){0};
}
