/* The call paths that a process allocated from, each once. Private to agent_*.c. */
#ifndef STROBE_SAMPLER_AGENT_SITES_H
#define STROBE_SAMPLER_AGENT_SITES_H

#include "base/digest.h"
#include "sampler/agent_code.h"
#include "sampler/sample.h"

/* A tree: a path is its caller's and one frame more. Frames are told apart by what they say, not by their code
 * object: what is compiled anew each time it runs is one path. */
struct agent_sites {
    struct agent_codes *codes;   /* borrowed */
    struct sample_sites told;    /* what a sink sees of it; paths[0] is the empty one */
    struct sample_frame *frames; /* told.frames; each holds a reference to its code */
    struct sample_path *paths;   /* told.paths */
    size_t frame_count, frame_capacity, path_capacity;
    struct map known_frames;            /* (serial, instruction) -> frame */
    struct digest_map places, children; /* what a frame says -> frame + 1; (path, frame) -> path */
};

/* `serial`: that of no other tree. */
enum status agent_sites_init(struct agent_sites *sites, struct agent_codes *codes, uint32_t serial) MUST_USE;
void agent_sites_release(struct agent_sites *sites);

/* The path that `frame` makes of `caller`. A frame's code belongs to the tree's agent_codes. When the tree is full it
 * is the caller's. */
enum status agent_sites_enter(struct agent_sites *sites, uint32_t caller, const struct sample_frame *frame,
                              uint32_t *path) MUST_USE;

#endif
