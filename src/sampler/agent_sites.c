#include "sampler/agent_sites.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PATHS = 1 << 19, MAX_FRAMES = 1 << 18, MAX_KNOWN_FRAMES = 1 << 19 };

/* Frames without code have keys that no serial and instruction make. */
static const uint64_t OTHER_KEYS = UINT64_MAX - 100;

static struct agent_code *code_of(const struct sample_frame *frame) {
    _Static_assert(offsetof(struct agent_code, code) == 0, "a code object of the agent's begins with what it says");
    return (struct agent_code *)(uintptr_t)frame->code;
}

enum status agent_sites_init(struct agent_sites *sites, struct agent_codes *codes, uint32_t serial) {
    *sites = (struct agent_sites){.codes = codes, .told.serial = serial};
    TRY(array_reserve((void **)&sites->paths, &sites->path_capacity, 1, sizeof sites->paths[0]));
    sites->paths[0] = (struct sample_path){0};
    sites->told.paths = sites->paths;
    sites->told.path_count = 1;
    return STATUS_OK;
}

void agent_sites_release(struct agent_sites *sites) {
    for (size_t i = 0; i < sites->frame_count; i++)
        if (sites->frames[i].code != NULL)
            agent_code_drop(sites->codes, code_of(&sites->frames[i]));
    map_release(&sites->known_frames);
    digest_map_release(&sites->places);
    digest_map_release(&sites->children);
    free(sites->frames);
    free(sites->paths);
}

static uint64_t key_of(const struct sample_frame *frame) {
    if (frame->code == NULL)
        return OTHER_KEYS + (uint64_t)frame->kind;
    return (uint64_t)frame->code->serial << 32 | (uint32_t)(frame->instruction_bytes + 1);
}

static struct digest digest_of_text(const char *text) {
    return digest_of(text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

/* What a reader of the frame would see. */
static struct digest place_of(const struct sample_frame *frame) {
    struct source_position position = {-1, -1, -1, -1};
    const struct code *code = frame->code;
    uint64_t fields[9] = {(uint64_t)frame->kind};
    if (code == NULL)
        return digest_of(fields, sizeof fields);
    position.line = code->lines.first_line;
    if (frame->instruction_bytes >= 0)
        (void)linetable_lookup(&code->lines, (uint32_t)frame->instruction_bytes, &position);
    struct digest name = digest_of_text(code->qualname != NULL ? code->qualname : code->name);
    struct digest file = digest_of_text(code->filename);
    fields[1] = name.low;
    fields[2] = file.low;
    fields[3] = (uint64_t)name.high << 32 | file.high;
    fields[4] = (uint32_t)code->lines.first_line;
    fields[5] = (uint32_t)position.line;
    fields[6] = (uint32_t)position.end_line;
    fields[7] = (uint32_t)position.column;
    fields[8] = (uint32_t)position.end_column;
    return digest_of(fields, sizeof fields);
}

static enum status add_frame(struct agent_sites *sites, const struct sample_frame *frame, uint32_t *number) {
    if (sites->frame_count == MAX_FRAMES)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&sites->frames, &sites->frame_capacity, sites->frame_count + 1,
                      sizeof sites->frames[0]));
    sites->told.frames = sites->frames;
    TRY(digest_map_set(&sites->places, place_of(frame), (uint32_t)sites->frame_count + 1));
    sites->frames[sites->frame_count] = *frame;
    if (frame->code != NULL)
        agent_code_hold(code_of(frame));
    *number = (uint32_t)sites->frame_count++;
    return STATUS_OK;
}

static enum status find_frame(struct agent_sites *sites, const struct sample_frame *frame, uint32_t *number) {
    uint64_t known = 0;
    if (map_get(&sites->known_frames, key_of(frame), &known)) {
        *number = (uint32_t)known;
        return STATUS_OK;
    }
    uint32_t same = digest_map_get(&sites->places, place_of(frame));
    if (same != 0)
        *number = same - 1;
    else
        TRY(add_frame(sites, frame, number));
    /* It only saves time. */
    if (sites->known_frames.count >= MAX_KNOWN_FRAMES)
        map_clear(&sites->known_frames);
    return map_set(&sites->known_frames, key_of(frame), *number);
}

static enum status enter(struct agent_sites *sites, uint32_t caller, const struct sample_frame *frame, uint32_t *path) {
    uint32_t number = 0;
    TRY(find_frame(sites, frame, &number));
    struct digest key = digest_of_pair(caller, number);
    if ((*path = digest_map_get(&sites->children, key)) != 0)
        return STATUS_OK;
    if (sites->told.path_count == MAX_PATHS)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&sites->paths, &sites->path_capacity, sites->told.path_count + 1,
                      sizeof sites->paths[0]));
    sites->told.paths = sites->paths;
    TRY(digest_map_set(&sites->children, key, (uint32_t)sites->told.path_count));
    *path = (uint32_t)sites->told.path_count++;
    sites->paths[*path] = (struct sample_path){.caller = caller, .frame = number};
    return STATUS_OK;
}

enum status agent_sites_enter(struct agent_sites *sites, uint32_t caller, const struct sample_frame *frame,
                              uint32_t *path) {
    enum status status = enter(sites, caller, frame, path);
    if (status != STATUS_LIMIT)
        return status;
    *path = caller;
    return STATUS_OK;
}
