/* files/ as it is, put into the program by the assembler (the Makefile knows that this file depends on them). */
#include "coordinator/serve/page/files.h"

#define FILE_IN(name, file)                                                                                            \
    extern const char page_##name[], page_##name##_end[];                                                              \
    __asm__(".pushsection .rodata\n.global page_" #name "\n.global page_" #name "_end\npage_" #name                    \
            ":\n.incbin \"coordinator/serve/page/files/" file "\"\npage_" #name "_end:\n.byte 0\n.popsection\n")

FILE_IN(html, "page.html");
FILE_IN(css, "page.css");
FILE_IN(icon, "icon.svg");
FILE_IN(theme, "theme.js");
FILE_IN(stream, "stream.js");
FILE_IN(text, "text.js");
FILE_IN(rings, "rings.js");
FILE_IN(gauges, "gauges.js");
FILE_IN(chat, "chat.js");
FILE_IN(page, "page.js");

#define JS "text/javascript; charset=utf-8"
const struct page_file page_files[] = {
    {"/", "text/html; charset=utf-8", page_html, page_html_end},
    {"/page/page.css", "text/css; charset=utf-8", page_css, page_css_end},
    {"/page/icon.svg", "image/svg+xml", page_icon, page_icon_end},
    {"/page/theme.js", JS, page_theme, page_theme_end},
    {"/page/stream.js", JS, page_stream, page_stream_end},
    {"/page/text.js", JS, page_text, page_text_end},
    {"/page/rings.js", JS, page_rings, page_rings_end},
    {"/page/gauges.js", JS, page_gauges, page_gauges_end},
    {"/page/chat.js", JS, page_chat, page_chat_end},
    {"/page/page.js", JS, page_page, page_page_end},
};
const size_t page_n_files = sizeof page_files / sizeof *page_files;
