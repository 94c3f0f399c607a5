/* The types of datetime, whose structs stand in Include/datetime.h and have not changed from 3.8 to 3.15. Behind the
 * object's header:
 *
 *   date       hash (8 bytes) | hastzinfo | year (2, the higher first), month, day
 *   datetime   hash (8 bytes) | hastzinfo | the same, hour, minute, second, microsecond (3) | fold | tzinfo at 24
 *   time       hash (8 bytes) | hastzinfo | hour, minute, second, microsecond (3) | fold | tzinfo at 16
 *   timedelta  hash (8 bytes) | days, seconds, microseconds (4 each)
 *   timezone   offset, name (pointers) */
#include "cpython/repr_parts.h"

#include "base/bytes.h"

enum { HASTZINFO = 8, DATA = 9, CLOCK_BYTES = 6, DATETIME_TZINFO = 24, TIME_TZINFO = 16, FIELDS_BYTES = 32 };

static enum status read_fields(struct repr *repr, remote_addr object, size_t size_bytes, uint8_t fields[FIELDS_BYTES]) {
    return memory_read(repr->runtime->objects, object + repr->runtime->layout.object.size, fields, size_bytes);
}

static enum status put_date(struct repr *repr, const uint8_t *data) {
    return repr_put_format(repr, "%d, %d, %d", data[0] << 8 | data[1], data[2], data[3]);
}

/* Seconds and microseconds only when there are any. */
static enum status put_clock(struct repr *repr, const uint8_t *data) {
    int microseconds = data[3] << 16 | data[4] << 8 | data[5];
    TRY(repr_put_format(repr, "%d, %d", data[0], data[1]));
    if (data[2] != 0 || microseconds != 0)
        TRY(repr_put_format(repr, ", %d", data[2]));
    return microseconds != 0 ? repr_put_format(repr, ", %d", microseconds) : STATUS_OK;
}

static enum status put_zone(struct repr *repr, remote_addr object, layout_offset zone_offset) {
    remote_addr zone = 0;
    TRY(memory_read_u64(repr->runtime->objects, object + repr->runtime->layout.object.size + zone_offset, &zone));
    TRY(repr_put(repr, ", tzinfo="));
    return repr_put_value(repr, zone);
}

static enum status put_fold(struct repr *repr, uint8_t fold) {
    return fold != 0 ? repr_put_format(repr, ", fold=%d", fold) : STATUS_OK;
}

enum status repr_show_date(struct repr *repr, remote_addr object, const struct type_info *type) {
    uint8_t fields[FIELDS_BYTES];
    TRY(read_fields(repr, object, DATA + 4, fields));
    TRY(repr_put_format(repr, "%s(", type->full_name));
    TRY(put_date(repr, fields + DATA));
    return repr_put(repr, ")");
}

enum status repr_show_datetime(struct repr *repr, remote_addr object, const struct type_info *type) {
    uint8_t fields[FIELDS_BYTES];
    const size_t fold_offset = DATA + 4 + CLOCK_BYTES;
    TRY(read_fields(repr, object, fold_offset + 1, fields));
    TRY(repr_put_format(repr, "%s(", type->full_name));
    TRY(put_date(repr, fields + DATA));
    TRY(repr_put(repr, ", "));
    TRY(put_clock(repr, fields + DATA + 4));
    TRY(put_fold(repr, fields[fold_offset]));
    if (fields[HASTZINFO] != 0)
        TRY(put_zone(repr, object, DATETIME_TZINFO));
    return repr_put(repr, ")");
}

enum status repr_show_time(struct repr *repr, remote_addr object, const struct type_info *type) {
    uint8_t fields[FIELDS_BYTES];
    const size_t fold_offset = DATA + CLOCK_BYTES;
    TRY(read_fields(repr, object, fold_offset + 1, fields));
    TRY(repr_put_format(repr, "%s(", type->full_name));
    TRY(put_clock(repr, fields + DATA));
    if (fields[HASTZINFO] != 0)
        TRY(put_zone(repr, object, TIME_TZINFO));
    TRY(put_fold(repr, fields[fold_offset]));
    return repr_put(repr, ")");
}

enum status repr_show_timedelta(struct repr *repr, remote_addr object, const struct type_info *type) {
    static const char *const names[] = {"days", "seconds", "microseconds"};
    uint8_t fields[FIELDS_BYTES];
    bool first = true;
    TRY(read_fields(repr, object, 8 + 3 * sizeof(int32_t), fields));
    TRY(repr_put_format(repr, "%s(", type->full_name));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t value = load_i32(fields + 8 + i * sizeof value);
        if (value == 0)
            continue;
        TRY(repr_put_comma(repr, &first));
        TRY(repr_put_format(repr, "%s=%d", names[i], value));
    }
    return repr_put(repr, first ? "0)" : ")");
}

/* UTC is the one without a name and a difference. */
enum status repr_show_timezone(struct repr *repr, remote_addr object, const struct type_info *type) {
    uint8_t fields[FIELDS_BYTES];
    uint8_t offset[FIELDS_BYTES];
    TRY(read_fields(repr, object, 16, fields));
    remote_addr name = load_u64(fields + 8);
    TRY(read_fields(repr, load_u64(fields), 8 + 3 * sizeof(int32_t), offset));
    bool utc = load_u64(offset + 8) == 0 && load_u32(offset + 16) == 0;
    if (name == 0 && utc)
        return repr_put_format(repr, "%s.utc", type->full_name);
    TRY(repr_put_format(repr, "%s(", type->full_name));
    TRY(repr_put_value(repr, load_u64(fields)));
    if (name != 0) {
        TRY(repr_put(repr, ", "));
        TRY(repr_put_value(repr, name));
    }
    return repr_put(repr, ")");
}
