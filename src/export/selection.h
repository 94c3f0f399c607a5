/* Which stacks and frames of a profile a format of whole stacks shows. */
#ifndef STROBE_EXPORT_SELECTION_H
#define STROBE_EXPORT_SELECTION_H

#include "export/export.h"

/* Zero-initialise it before use; the pieces are freed by selection_release. */
struct selection {
    const struct profile *profile;
    const struct attribute_options *options; /* may be NULL */
    uint32_t *shown;                         /* by stack: itself, or its nearest caller that is shown; 0: none is */
    bool *kept;                              /* by stack: `only` has no word against it */
};

/* Only want of memory makes it fail. Both pointers are borrowed. */
enum status selection_init(struct selection *selection, const struct profile *profile,
                           const struct export_options *options) MUST_USE;
void selection_release(struct selection *selection);
/* Whether what this thread did with this stack is counted. */
bool selection_has(const struct selection *selection, uint32_t thread, uint32_t stack);
bool selection_has_thread(const struct selection *selection, uint32_t thread);
/* The stack that is shown for this one, and the caller of a shown one; 0: none. */
uint32_t selection_stack(const struct selection *selection, uint32_t stack);
uint32_t selection_caller(const struct selection *selection, uint32_t stack);

/* The frames of a shown stack, outermost first, into `frames` (room for the stack's depth); returns how many. */
size_t selection_frames(const struct selection *selection, uint32_t stack, uint32_t *frames);
/* The depth of the deepest stack: the room that selection_frames needs. */
size_t selection_max_depth(const struct selection *selection);

#endif
