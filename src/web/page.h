/* The page of the HTML report, without its data: made at build time of the files in this folder. */
#ifndef STROBE_WEB_PAGE_H
#define STROBE_WEB_PAGE_H

#include <stddef.h>

/* The page up to the JSON that is its data, and from there on. The JSON stands in a <script>: it may hold no '<'. */
extern const unsigned char web_page_before_data[];
extern const size_t web_page_before_data_size;
extern const unsigned char web_page_after_data[];
extern const size_t web_page_after_data_size;

#endif
