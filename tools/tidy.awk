# SPDX-License-Identifier: Apache-2.0
# The rules of tools/tidy that look into files. Input: a file name in each line. -v allow=FILE.
# The tree is formatted by clang-format, so a function's body is what lies between a "{" and a "}"
# that stand alone in the first column. Bytes, not characters: run with LC_ALL=C.

function complain(kind, number, text)
{
	printf "%s:%d: %s: %s\n", file, number, kind, text
	counts[kind]++
}

function error(number, text) { complain("error", number, text) }
function warning(number, text) { complain("warning", number, text) }

function read_allow(    line, words)
{
	while ((getline line < allow) > 0) {
		if (line ~ /^[ \t]*(#|$)/)
			continue
		if (split(line, words, /[ \t]+/) < 3) {
			file = allow
			error(0, "a row needs a rule, a path and a reason: " line)
			continue
		}
		places[words[1] " " words[2]] = 1
	}
	close(allow)
}

# Whether `rule` is lifted for this file, or for a folder it lies in.
function is_allowed(rule,    folder)
{
	if ((rule " " file) in places)
		return 1
	folder = file
	while (sub(/[^\/]+\/?$/, "", folder) && folder != "")
		if ((rule " " folder) in places)
			return 1
	return 0
}

# Columns of a line: a tab goes to the next multiple of 8, UTF-8 continuation bytes take none.
function columns(text,    count, parts, i, column)
{
	gsub(/[\200-\277]/, "", text)
	count = split(text, parts, "\t")
	column = 0
	for (i = 1; i < count; i++)
		column = int((column + length(parts[i])) / 8 + 1) * 8
	return column + length(parts[count])
}

# The code of a line: comments are cut out, the insides of strings emptied.
function code_of(text,    code, at, token)
{
	code = ""
	for (;;) {
		if (in_comment) {
			at = index(text, "*/")
			if (!at)
				return code
			text = substr(text, at + 2)
			in_comment = 0
		}
		if (!match(text, /"|'|\/\*|\/\//))
			return code text
		token = substr(text, RSTART, RLENGTH)
		code = code substr(text, 1, RSTART - 1)
		text = substr(text, RSTART + RLENGTH)
		if (token == "//")
			return code
		if (token == "/*") {
			in_comment = 1
			code = code " "
			continue
		}
		code = code token
		if (token == "\"" && match(text, /^([^"\\]|\\.)*"/))
			text = substr(text, RLENGTH + 1)
		else if (token == "'" && match(text, /^([^'\\]|\\.)*'/))
			text = substr(text, RLENGTH + 1)
		else
			return code # Not closed in this line: a digit separator, or C++.
		code = code token
	}
}

function has_call(code, name)
{
	return code ~ ("(^|[^A-Za-z0-9_.>])" name "[ \t]*\\(")
}

# Once in a file: it is the file that has a reason or has not.
function check_place(number, rule)
{
	if (is_allowed(rule) || (rule in complained))
		return
	complained[rule] = 1
	error(number, rule " outside its places: tools/tidy.allow, with a reason")
}

function check_calls(number, code,    i)
{
	for (i = 1; i <= banned_count; i++)
		if (has_call(code, banned[i]))
			error(number, banned[i] "() is banned: " reasons[banned[i]])
	if (file ~ /^tests\//)
		for (i = 1; i <= sleeps_count; i++)
			if (has_call(code, sleeps[i]) && !is_allowed("sleep"))
				error(number, sleeps[i] "() in a test: wait for an event instead")
	if (code ~ /stdatomic\.h|__atomic_|__sync_|(^|[^A-Za-z0-9_])_Atomic([^A-Za-z0-9_]|$)/)
		check_place(number, "atomic")
	if (code ~ /pthread_(mutex|rwlock|cond|spin)_/)
		check_place(number, "mutex")
}

# The name of the function whose declaration is `text`: the word before the first "(" that is no
# attribute's.
function function_name(text)
{
	gsub(/__attribute__[ \t]*\(\(([^()]|\([^()]*\))*\)\)/, "", text)
	if (!match(text, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/))
		return ""
	text = substr(text, RSTART, RLENGTH)
	sub(/[ \t]*\($/, "", text)
	return text
}

function check_function(number, lines_count)
{
	if (lines_count > 100)
		error(number, "a function of " lines_count " lines; 100 are the limit, 70 the aim")
	else if (lines_count > 70 && file !~ /^tests\//)
		warning(number, "a function of " lines_count " lines; 70 are the aim")
}

function check_documented(    name)
{
	name = function_name(chunk)
	if (file !~ /\.(c|cc|cu)$/ || file ~ /^(tests|bench)\//)
		return
	if (name == "" || name == "main" || (" " chunk) ~ /[^A-Za-z0-9_]static[^A-Za-z0-9_]/)
		return
	if (chunk_is_documented || name in header_documented)
		return
	error(chunk_number, name "() is not documented: a comment directly above it, here or in its header")
}

# A run of code on the top level: a declaration, or the head of a function.
function top_level(number, text, code)
{
	if (code ~ /^[ \t]*#/ || text ~ /^[ \t]*$/ || code ~ /^[ \t]*$/) {
		is_below_comment = text ~ /\*\/[ \t]*$/
		if (code !~ /[^ \t]/ && text ~ /[^ \t]/)
			return # A comment's line: the chunk goes on below it.
		chunk = ""
		return
	}
	if (code == "{") {
		if (index(chunk, "(")) {
			check_documented()
			body_number = number
			in_body = 1
		}
		chunk = ""
		return
	}
	if (chunk == "") {
		chunk_number = number
		chunk_is_documented = is_below_comment
	}
	chunk = chunk " " code
	is_below_comment = 0
	if (code ~ /[;{}][ \t]*$/)
		chunk = ""
}

# Files of a folder become one program, in which a suite has one file: TestSuite() is for all its tests.
function check_suite(number, text,    suite, folder)
{
	if (file !~ /^tests\/.*\.c$/ || !match(text, /^Test(Suite)?\([A-Za-z0-9_]+/))
		return
	suite = substr(text, 1, RLENGTH)
	sub(/^Test(Suite)?\(/, "", suite)
	folder = file
	sub(/[^\/]*$/, "", folder)
	if (!((folder suite) in suites))
		suites[folder suite] = file
	else if (suites[folder suite] != file) {
		error(number, "suite " suite " has tests in " suites[folder suite] " as well")
		suites[folder suite] = file # Once is enough.
	}
}

function check_c(number, text,    code)
{
	check_suite(number, text)
	code = code_of(text)
	check_calls(number, code)
	if (columns(text) > 100)
		error(number, "a line of " columns(text) " columns; 100 are the limit")
	if (!in_body) {
		top_level(number, text, code)
		return
	}
	if (text ~ /^}/) {
		check_function(body_number, number - body_number + 1)
		in_body = 0
		is_below_comment = 0
	}
}

function check_file(    number, text, is_c, aim)
{
	is_c = file ~ /\.(c|h|cc|hh|cu)$/
	in_comment = 0
	in_body = 0
	chunk = ""
	is_below_comment = 0
	is_licensed = 0
	split("", complained)
	number = 0
	while ((getline text < file) > 0) {
		number++
		if (number <= 3 && text ~ /SPDX-License-Identifier: Apache-2\.0/)
			is_licensed = 1
		if (text ~ /(^|[^A-Za-z0-9_])(TODO|FIXME|XXX)([^A-Za-z0-9_]|$)/)
			error(number, "unfinished: no TODO, FIXME or XXX in the tree")
		if (is_c)
			check_c(number, text)
	}
	close(file)
	if (!is_licensed && number)
		error(1, "no SPDX-License-Identifier in its first lines")
	# A test reads from top to bottom whatever its length.
	aim = file ~ /^tests\// ? 500 : 400
	if (is_c && number > aim + 100)
		error(number, "a file of " number " lines; " aim + 100 " are the limit, " aim " the aim")
	else if (is_c && number > aim)
		warning(number, "a file of " number " lines; " aim " are the aim")
}

# What a header says above a declaration counts as well: the public API is documented where its
# users read it, and so is what a folder offers. One comment may speak for the declarations that
# follow it without an empty line.
function read_header(    text, code, declared, is_doc, above, is_group)
{
	in_comment = 0
	declared = ""
	is_group = 0
	while ((getline text < file) > 0) {
		code = code_of(text)
		if (text !~ /[^ \t]/)
			is_group = 0
		if (declared == "")
			above = is_doc || is_group
		is_doc = code !~ /[^ \t]/ && text ~ /\*\/[ \t]*$/
		if (code !~ /[^ \t]/ || code ~ /^[ \t]*#/) {
			declared = ""
			continue
		}
		declared = declared " " code
		if (code ~ /;[ \t]*$/) {
			is_group = above
			if (above && function_name(declared) != "")
				header_documented[function_name(declared)] = 1
			declared = ""
		}
	}
	close(file)
}

BEGIN {
	banned_count = split("sprintf vsprintf strcpy strcat alloca usleep gets strtok", banned, " ")
	reasons["sprintf"] = "snprintf knows the end"
	reasons["vsprintf"] = "vsnprintf knows the end"
	reasons["strcpy"] = "zi_copy_name or snprintf know the end"
	reasons["strcat"] = "snprintf knows the end"
	reasons["alloca"] = "the stack has no error path"
	reasons["usleep"] = "wait for an event, or on the loop's timer"
	reasons["gets"] = "it has no end at all"
	reasons["strtok"] = "it keeps its place in a global; strtok_r"
	sleeps_count = split("sleep nanosleep clock_nanosleep", sleeps, " ")
	read_allow()
}

{ paths[++paths_count] = $0 }

END {
	for (p = 1; p <= paths_count; p++) {
		file = paths[p]
		if (file ~ /\.h$/)
			read_header()
	}
	for (p = 1; p <= paths_count; p++) {
		file = paths[p]
		check_file()
	}
	printf "tidy: %d files, %d errors, %d warnings\n", paths_count, counts["error"],
		counts["warning"]
	exit counts["error"] > 0
}
