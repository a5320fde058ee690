/** docs/support.md: which entry has kernels for which op, and which calls it declines. */
#ifndef TGI_TESTS_SUPPORT_PAGE_H
#define TGI_TESTS_SUPPORT_PAGE_H

void print_support_page(void);

#endif
