/* A frame of a dump as text for a person. */
#ifndef STROBE_CLI_FRAME_TEXT_H
#define STROBE_CLI_FRAME_TEXT_H

#include "base/buffer.h"
#include "sampler/look.h"
#include "terminal/source.h"

/* Select Graphic Rendition codes; all empty when there are to be no colours. */
struct palette {
    const char *thread, *function, *file, *mark, *name, *warning, *end;
};

/* Appends where a frame is, its line of source and a mark under the part that is being executed, each line with
 * `indent` blanks before it. The frame's status is STATUS_OK. Frames come by the thousand, and this is most of a dump's
 * work. */
enum status frame_text_append(struct buffer *text, struct source_cache *sources, const struct palette *palette,
                              const struct look_frame *frame, size_t indent) MUST_USE;

#endif
