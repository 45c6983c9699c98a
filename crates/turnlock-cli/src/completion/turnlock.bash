# Completions of turnlock for bash.

_turnlock() {
    local line
    local -a reply=()
    COMPREPLY=()
    while IFS= read -r line || [[ -n $line ]]; do
        reply+=("$line")
    done < <(command turnlock __complete bash -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    case ${reply[0]-} in
        'command '*) _turnlock_command "${reply[0]#command }" "$2" ;;
        nospace)
            compopt -o nospace 2>/dev/null
            COMPREPLY=("${reply[@]:1}")
            ;;
        *) COMPREPLY=("${reply[@]:1}") ;;
    esac
}

# Completes a command that begins at character $1 of the line. $2 is the word at the cursor.
_turnlock_command() {
    local rest=${COMP_LINE:0:$1} candidate
    local -i index=0
    while ((index < COMP_CWORD)) && [[ $rest == *"${COMP_WORDS[index]}"* ]]; do
        rest=${rest#*"${COMP_WORDS[index]}"}
        index+=1
    done
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$index"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$index"
    else
        local action=-f
        ((COMP_CWORD == index)) && [[ $2 != */* ]] && action=-c
        compopt -o filenames 2>/dev/null
        while IFS= read -r candidate; do
            COMPREPLY+=("$candidate")
        done < <(compgen "$action" -- "$2")
    fi
}

complete -F _turnlock turnlock
