#include "unwind/outside.h"

#include <string.h>

/* One read of all that are to be of one instant: the top, the frames outside that it runs, what these call, and the top
 * once more. */
struct confirmation {
    size_t first;
    const struct tracked_frame *callee; /* or NULL */
    uint8_t before[FRAME_HEAD_MAX_BYTES];
    uint8_t callee_bytes[FRAME_HEAD_MAX_BYTES];
    struct memory_piece pieces[SEEN_CALLS_MAX_LINKS + 3];
    size_t piece_count;
};

static void add_piece(struct confirmation *confirmation, remote_addr address, void *bytes, size_t size_bytes) {
    confirmation->pieces[confirmation->piece_count++] = (struct memory_piece){address, bytes, size_bytes};
}

static bool list_pieces(const struct walk *walk, struct confirmation *confirmation, struct again *again) {
    const struct tracked_frame *frames = walk->tracker->stack.frames;
    const size_t first = confirmation->first;
    if (walk->count - first > SEEN_CALLS_MAX_LINKS)
        return false;
    add_piece(confirmation, again->address, confirmation->before, again->size_bytes);
    for (size_t i = first; i < walk->count; i++) {
        struct outside_frame *outside = outside_find(walk->tracker, frames[i].address);
        if (outside == NULL || frames[i].assumed)
            return false;
        add_piece(confirmation, frames[i].address, outside->bytes, outside->place.size_bytes);
    }
    if (confirmation->callee != NULL)
        add_piece(confirmation, confirmation->callee->address, confirmation->callee_bytes,
                  frame_head_size(walk->layout));
    add_piece(confirmation, again->address, again->bytes, again->size_bytes);
    return true;
}

/* What was read of the frames cannot be trusted any more. */
static void forget_read(const struct walk *walk, size_t first) {
    for (size_t i = first; i < walk->count; i++) {
        struct outside_frame *outside = outside_find(walk->tracker, walk->tracker->stack.frames[i].address);
        if (outside != NULL)
            outside->read = false;
    }
}

/* Whether what was read of a frame is still that frame, called by the one below. */
static bool is_frame_still(const struct walk *walk, const struct tracked_frame *tracked, const uint8_t *bytes,
                           remote_addr below, struct frame *frame) {
    return frame_decode(walk->layout, tracked->address, bytes, frame) == STATUS_OK && frame->previous == below &&
           frame->boundary == (tracked->code == NULL) &&
           load_u64(bytes + walk->layout->frame.f_executable) == tracked->executable;
}

/* Takes the frames as they are now. */
static bool take_frames(struct walk *walk, const struct confirmation *confirmation) {
    struct tracked_frame *frames = walk->tracker->stack.frames;
    remote_addr below = frames[walk->top].address;
    struct frame frame;
    for (size_t i = confirmation->first; i < walk->count; i++) {
        const uint8_t *bytes = outside_find(walk->tracker, frames[i].address)->bytes;
        struct tracked_frame now;
        if (!is_frame_still(walk, &frames[i], bytes, below, &frame) ||
            walk_resolve(walk, &frame, frames[i].executable, &now) != STATUS_OK)
            return false;
        tracked_stack_touch(&walk->tracker->stack, i);
        frames[i].instruction = now.instruction;
        frames[i].instruction_bytes = now.instruction_bytes;
        below = frames[i].address;
    }
    for (size_t i = confirmation->first; i < walk->count; i++)
        walk_set_path(walk, i);
    return confirmation->callee == NULL ||
           is_frame_still(walk, confirmation->callee, confirmation->callee_bytes, below, &frame);
}

static bool may_be(const struct walk *walk, const struct confirmation *confirmation) {
    return outside_may_have_run(walk, confirmation->first) && outside_may_have_led(walk, confirmation->first) &&
           (confirmation->callee == NULL ||
            outside_may_have_called(walk, confirmation->callee, confirmation->callee_bytes));
}

bool outside_confirm(struct walk *walk, size_t first, const struct tracked_frame *callee) {
    struct confirmation confirmation = {.first = first, .callee = callee};
    struct again *again = outside_runner_place(walk->tracker, &walk->tracker->stack.frames[walk->top]);
    if (again == NULL || !list_pieces(walk, &confirmation, again))
        return false;
    again->read =
        memory_read_pieces(walk->tracker->runtime->live, confirmation.pieces, confirmation.piece_count) == STATUS_OK;
    if (!again->read) {
        forget_read(walk, first);
        return false;
    }
    return memcmp(confirmation.before, again->bytes, frame_head_size(walk->layout)) == 0 &&
           take_frames(walk, &confirmation) && may_be(walk, &confirmation);
}
