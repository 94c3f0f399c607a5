#include "export/functions.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

/* Texts of a profile are interned: equal ones have one address. */
static int compare_pointers(const void *left, const void *right) {
    return ((uintptr_t)left > (uintptr_t)right) - ((uintptr_t)left < (uintptr_t)right);
}

struct order {
    const struct profile *profile;
    bool by_qualname;
};

static int compare_frames(const struct profile_frame *left, const struct profile_frame *right, bool by_qualname) {
    int order = compare_pointers(left->file, right->file);
    if (order == 0 && by_qualname)
        order = compare_pointers(left->qualname, right->qualname);
    if (order == 0)
        order = compare_pointers(left->function, right->function);
    if (order == 0)
        order = (left->first_line > right->first_line) - (left->first_line < right->first_line);
    if (order == 0)
        order = (left->kind > right->kind) - (left->kind < right->kind);
    return order;
}

static int compare_numbers(const void *left, const void *right, void *context) {
    const struct order *how = context;
    uint32_t left_frame = *(const uint32_t *)left;
    uint32_t right_frame = *(const uint32_t *)right;
    int order = compare_frames(&how->profile->frames[left_frame], &how->profile->frames[right_frame], how->by_qualname);
    return order != 0 ? order : (left_frame > right_frame) - (left_frame < right_frame);
}

enum status functions_init(struct functions *functions, const struct profile *profile, bool by_qualname) {
    struct order order = {profile, by_qualname};
    size_t count = profile->frame_count;
    uint32_t *sorted = calloc(count + 1, sizeof sorted[0]);
    functions->of_frame = calloc(count + 1, sizeof functions->of_frame[0]);
    functions->one_frame = calloc(count + 1, sizeof functions->one_frame[0]);
    functions->count = 1;
    if (sorted == NULL || functions->of_frame == NULL || functions->one_frame == NULL) {
        free(sorted);
        functions_release(functions);
        return STATUS_FAILED;
    }
    for (size_t i = 1; i < count; i++)
        sorted[i] = (uint32_t)i;
    if (count > 1)
        qsort_r(sorted + 1, count - 1, sizeof sorted[0], compare_numbers, &order);
    for (size_t i = 1; i < count; i++) {
        if (i == 1 || compare_frames(&profile->frames[sorted[i]], &profile->frames[sorted[i - 1]], by_qualname) != 0)
            functions->one_frame[functions->count++] = sorted[i];
        functions->of_frame[sorted[i]] = (uint32_t)(functions->count - 1);
    }
    free(sorted);
    return STATUS_OK;
}

void functions_release(struct functions *functions) {
    free(functions->of_frame);
    free(functions->one_frame);
    memset(functions, 0, sizeof *functions);
}

static enum status number_files(struct files *files, const struct profile *profile, struct map *numbers) {
    for (size_t i = 0; i < profile->frame_count; i++) {
        const struct profile_frame *frame = &profile->frames[i];
        uint64_t number;
        if (!map_get(numbers, (uintptr_t)frame->file, &number)) {
            number = files->count++;
            TRY(map_set(numbers, (uintptr_t)frame->file, number));
            files->paths[number] = frame->file;
            files->is_library[number] = frame->is_library;
        }
        files->of_frame[i] = (uint32_t)number;
    }
    return STATUS_OK;
}

enum status files_init(struct files *files, const struct profile *profile) {
    struct map numbers = {0};
    enum status status = STATUS_FAILED;
    files->of_frame = calloc(profile->frame_count + 1, sizeof files->of_frame[0]);
    files->paths = calloc(profile->frame_count + 1, sizeof files->paths[0]);
    files->is_library = calloc(profile->frame_count + 1, sizeof files->is_library[0]);
    files->count = 0;
    if (files->of_frame != NULL && files->paths != NULL && files->is_library != NULL)
        status = number_files(files, profile, &numbers);
    map_release(&numbers);
    if (status != STATUS_OK)
        files_release(files);
    return status;
}

void files_release(struct files *files) {
    free(files->of_frame);
    free(files->paths);
    free(files->is_library);
    memset(files, 0, sizeof *files);
}
