# SPDX-License-Identifier: Apache-2.0
# The rule of tools/tidy for the subject of a commit: "area: imperative", 72 columns. Input: a hash and a subject in each
# line. An imperative is told from its opposites: a verb in another form, an article, a pronoun.

function error(text) { printf "commit %s: error: %s: '%s'\n", hash, text, subject }

{
	hash = $1
	subject = substr($0, length($1) + 2)
	if (subject ~ /^Revert "/)
		next
	text = subject
	gsub(/[\200-\277]/, "", text) # Continuation bytes of UTF-8 take no column.
	if (length(text) > 72)
		error("a subject of " length(text) " columns; 72 are the limit")
	if (!match(text, /^[a-z0-9][A-Za-z0-9_.\/+-]*(, [a-z0-9][A-Za-z0-9_.\/+-]*)*: /)) {
		error("a subject begins with its area: 'tier: free the region'")
		next
	}
	text = substr(text, RLENGTH + 1)
	split(text, words, " ")
	word = words[1]
	if (word !~ /^[a-z][a-z-]*$/ ||
	    word ~ /^(an?|the|who|what|when|which|where|whose|how|it|this|that|these|there|all|each|every|no|not|one)$/ ||
	    (word ~ /(ed|ing)$/ && word !~ /^(bring|embed|exceed|feed|fling|need|proceed|ping|ring|seed|shed|speed|spring|string|succeed|swing|wing)$/))
		error("behind its area a subject says what to do ('free', not 'freed')")
	if (text ~ /\.$/)
		error("a subject ends without a full stop")
}
