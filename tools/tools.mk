# SPDX-License-Identifier: Apache-2.0
# Checks of the tree itself: floors, headers, style. Included by the Makefile.

.PHONY: check-floors check-headers check-links tidy format check-tools

check-floors: ## each file includes only what tools/floors allows
	$(Q)tools/check_floors

check-headers: ## each header compiles alone
	$(Q)tools/check_headers $(CC) $(CFLAGS_BASE)

check-links: ## links between documents resolve
	$(Q)tools/check_links

tidy: check-links ## banned calls, lengths, undocumented functions, dead files, format
	$(Q)tools/tidy
	$(Q)tools/tidy --format

format: ## format every C file (clang-format 14)
	$(Q)tools/sources c h cc hh cu | xargs -r clang-format -i

check-tools: ## the checks above catch a deliberate breach of each kind
	$(Q)tests/unit/tools/run.sh
