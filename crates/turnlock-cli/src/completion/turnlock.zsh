#compdef turnlock

# Completions of turnlock for zsh.

_turnlock() {
    local -a reply values
    local first
    reply=("${(@f)$(command turnlock __complete zsh -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    values=("${(@)reply[2,-1]}")
    case $reply[1] in
        command\ <->)
            first=${reply[1]#command }
            shift $first words
            (( CURRENT -= first ))
            _normal
            ;;
        nospace) _describe value values -S '' ;;
        *) _describe value values ;;
    esac
}

if [[ $funcstack[1] == _turnlock ]]; then
    _turnlock "$@"
else
    compdef _turnlock turnlock
fi
