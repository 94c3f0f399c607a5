#include "unwind/linked_parts.h"

/* Whether the frame at `address` or one of its callers is `wanted`, as far as heads were read. */
static bool leads_to(struct linked_tracker *tracker, remote_addr address, const struct linked_head *wanted) {
    for (unsigned hops = 0; hops < LINKED_MAX_OTHERS && address != 0; hops++) {
        uint64_t index = 0;
        if (address == wanted->address)
            return true;
        if (!map_get(&tracker->by_address, address, &index) || tracker->heads[index].read != tracker->look)
            return false;
        address = load_u64(tracker->heads[index].bytes + linked_layout(tracker)->frame_object.f_back);
    }
    return false;
}

/* Whether a caller was read while the frame it has called was on the stack: before and after, it was. */
static bool is_caught_calling(struct linked_tracker *tracker, const struct linked_head *caller,
                              const struct linked_head *callee) {
    return caller->is_first && linked_head_runs(tracker, caller) && leads_to(tracker, tracker->frame_meanwhile, callee);
}

/* Learns what a caller calls from where, by its own word; `callee` is what it has called in this look. */
static enum status study_call(struct linked_tracker *tracker, const struct linked_head *caller,
                              const struct code *callee) {
    struct studied_call call;
    enum status status = frame_study_call(&tracker->study, caller->address, &call);
    if (status != STATUS_OK)
        return status == STATUS_FAILED ? status : STATUS_OK;
    if (!call.direct && call.callee != callee)
        return STATUS_OK;
    return call_sites_note(&tracker->sites, call.caller, call.instruction_bytes, call.callee,
                           call.standing ? CALL_CERTAIN : CALL_COPIED);
}

enum status linked_sites_check(struct linked_tracker *tracker, const struct linked_head *caller,
                               int32_t instruction_bytes, const struct code *callee, bool *certain) {
    struct call_sites *sites = &tracker->sites;
    *certain = call_sites_knows(sites, caller->code, instruction_bytes, callee);
    if (*certain)
        return STATUS_OK;
    if (call_sites_asks(sites, caller->code, callee))
        TRY(study_call(tracker, caller, callee));
    *certain = call_sites_knows(sites, caller->code, instruction_bytes, callee);
    enum opcode_family family = code_cache_step(tracker->codes, caller->code, instruction_bytes).family;
    bool possible = family != OPCODE_OTHER && !call_sites_excludes(sites, caller->code, instruction_bytes, callee) &&
                    !call_sites_calls_elsewhere(sites, caller->code, callee);
    return *certain || possible ? STATUS_OK : STATUS_TORN;
}

/* Where a caller stood when it called, given where it stands now: *instruction_bytes. */
enum status linked_sites_place(struct linked_tracker *tracker, const struct linked_head *caller,
                               const struct linked_head *callee, int32_t *instruction_bytes) {
    struct call_sites *sites = &tracker->sites;
    if (call_sites_knows(sites, caller->code, *instruction_bytes, callee->code))
        return STATUS_OK;
    if (is_caught_calling(tracker, caller, callee))
        TRY(call_sites_note(sites, caller->code, *instruction_bytes, callee->code, CALL_LIKELY));
    if (call_sites_asks(sites, caller->code, callee->code))
        TRY(study_call(tracker, caller, callee->code));
    if (!tracker->last_attempt && !call_sites_is_settled(sites, caller->code, callee->code))
        return STATUS_TORN;
    *instruction_bytes = call_sites_guess(sites, tracker->codes, caller->code, callee->code, *instruction_bytes);
    return STATUS_OK;
}
