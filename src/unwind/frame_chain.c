#include "unwind/frame_chain.h"

#include "base/array.h"
#include "base/bytes.h"

#include <stdlib.h>

enum {
    /* Read beyond datastack_top: the thread may have pushed a few frames since that was read. */
    SLACK_BYTES = 1024,
    FIRST_CHUNK_READ_BYTES = 1 << 20,
    VERIFY_BATCH = 512,
};

enum status frame_list_add(struct frame_list *list, const struct frame *frame) {
    TRY(array_reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof list->items[0]));
    list->items[list->count++] = *frame;
    return STATUS_OK;
}

static enum status read_frame(struct stack_reader *reader, struct memory *memory, remote_addr address,
                              struct frame *frame) {
    const struct layout *layout = &reader->runtime->layout;
    uint8_t bytes[FRAME_HEAD_MAX_BYTES];
    size_t size_bytes = frame_head_size(layout);
    if (size_bytes > sizeof bytes)
        return STATUS_LIMIT;
    TRY(memory_read(memory, address, bytes, size_bytes));
    return frame_decode(layout, address, bytes, frame);
}

/* Follows the links from `address`. A frame that makes no sense ends the walk: what it points to is not known. */
static enum status follow(struct stack_reader *reader, struct memory *memory, remote_addr address, bool *cut) {
    struct frame_list *chain = &reader->chain;
    /* Brent's way to notice a chain that bites its tail: compare with a frame left behind ever longer ago. */
    remote_addr left_behind = 0;
    chain->count = 0;
    *cut = false;
    while (address != 0) {
        if (address == left_behind)
            return STATUS_TORN;
        if ((chain->count & (chain->count - 1)) == 0)
            left_behind = address;
        if (chain->count >= MAX_STACK_FRAMES) {
            *cut = true;
            return STATUS_OK;
        }
        if (memory == &reader->image.memory && !stack_image_holds(&reader->image, address)) {
            /* An older chunk, or a generator's own frame, which is in no chunk and read where it is. */
            enum status extended = stack_image_extend_to(&reader->image, &reader->runtime->layout, address);
            if (extended == STATUS_FAILED)
                return extended;
        }
        struct frame frame;
        TRY(read_frame(reader, memory, address, &frame));
        TRY(frame_list_add(chain, &frame));
        address = frame.previous;
    }
    return STATUS_OK;
}

/* Reads the frames of the chain again, many to a call, and compares. They lie scattered over the heap, so that the
 * first pass is of as many instants as it has frames. */
static enum status verify_objects(struct stack_reader *reader, bool *same) {
    const struct layout *layout = &reader->runtime->layout;
    size_t size_bytes = frame_head_size(layout);
    struct frame_list *chain = &reader->chain;
    struct memory_piece pieces[VERIFY_BATCH];
    uint8_t *bytes = malloc(VERIFY_BATCH * size_bytes);
    if (bytes == NULL)
        return STATUS_FAILED;
    enum status status = STATUS_OK;
    *same = true;
    for (size_t done = 0; done < chain->count && *same && status == STATUS_OK; done += VERIFY_BATCH) {
        size_t batch = chain->count - done < VERIFY_BATCH ? chain->count - done : VERIFY_BATCH;
        for (size_t i = 0; i < batch; i++)
            pieces[i] = (struct memory_piece){chain->items[done + i].address, bytes + i * size_bytes, size_bytes};
        status = memory_read_pieces(reader->runtime->live, pieces, batch);
        for (size_t i = 0; i < batch && *same && status == STATUS_OK; i++) {
            struct frame again;
            struct frame *known = &chain->items[done + i];
            status = frame_decode(layout, known->address, bytes + i * size_bytes, &again);
            *same = status == STATUS_OK && again.previous == known->previous && again.code == known->code;
            *known = again;
        }
    }
    free(bytes);
    return status;
}

enum status frame_chain_read_objects(struct stack_reader *reader, struct thread_state *thread, bool *consistent,
                                     bool *cut) {
    struct memory *live = reader->runtime->live;
    *consistent = false;
    TRY(memory_read_u64(live, thread->frame_slot, &thread->frame));
    TRY(follow(reader, live, thread->frame, cut));
    bool same = false;
    remote_addr after = 0;
    TRY(verify_objects(reader, &same));
    TRY(memory_read_u64(live, thread->frame_slot, &after));
    *consistent = same && after == thread->frame;
    return STATUS_OK;
}

/* Copies the newest chunk and, in the same call and behind it, the slot that names the innermost frame. */
static enum status copy_newest_chunk(struct stack_reader *reader, const struct thread_state *thread,
                                     remote_addr *frame_after) {
    struct stack_image *image = &reader->image;
    const struct layout *layout = &reader->runtime->layout;
    stack_image_clear(image);
    remote_addr chunk = thread->datastack_chunk;
    uint64_t used_bytes = thread->datastack_top - chunk;
    /* A chunk is a mapping of its own: behind its end there may be nothing. */
    uint64_t free_bytes = thread->datastack_limit - thread->datastack_top;
    uint64_t slack_bytes = free_bytes < SLACK_BYTES ? free_bytes : SLACK_BYTES;
    if (chunk == 0 || used_bytes < layout->stack_chunk.data || used_bytes > FIRST_CHUNK_READ_BYTES) {
        image->next_chunk = chunk;
        return memory_read_u64(reader->runtime->live, thread->frame_slot, frame_after);
    }
    uint8_t *bytes = NULL;
    size_t wanted = (size_t)(used_bytes + slack_bytes);
    TRY(stack_image_reserve(image, chunk, wanted, &bytes));
    struct memory_piece pieces[] = {{chunk, bytes, wanted}, {thread->frame_slot, frame_after, sizeof *frame_after}};
    TRY(memory_read_pieces(reader->runtime->live, pieces, 2));
    stack_image_commit(image);
    image->next_chunk = load_u64(bytes + layout->stack_chunk.previous);
    return STATUS_OK;
}

/* The outermost frame of a chain is the entry to the interpreter: a boundary frame from 3.12 on. */
static bool ends_well(const struct stack_reader *reader, bool cut) {
    const struct frame_list *chain = &reader->chain;
    if (chain->count == 0 || cut || layout_minor(&reader->runtime->layout) < 12)
        return true;
    return chain->items[chain->count - 1].boundary;
}

enum status frame_chain_read_stack(struct stack_reader *reader, struct thread_state *thread, bool *consistent,
                                   bool *cut) {
    *consistent = false;
    remote_addr after = 0;
    TRY(thread_state_read(reader->runtime, thread->address, thread));
    if (thread->frame == 0) {
        reader->chain.count = 0;
        *consistent = true;
        return STATUS_OK;
    }
    TRY(copy_newest_chunk(reader, thread, &after));
    TRY(follow(reader, &reader->image.memory, thread->frame, cut));
    *consistent = after == thread->frame && ends_well(reader, *cut);
    return STATUS_OK;
}
